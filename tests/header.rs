// SPDX-License-Identifier: Apache-2.0
//! The headers in include/ match src/ffi. `make header` writes them again.
//!
//! A template in src/ffi/headers has the text and the order of a header. A line `@FILE NAME...` stands for declarations of that
//! file of src/ffi, which cbindgen makes; `@FILE` stands for all that no such line names. They are in the order of the file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[path = "support/reference.rs"]
mod reference;

/// The headers in the order in which a reader meets them.
const HEADERS: [&str; 12] = [
    "kvmem.h",
    "kvmem/base.h",
    "kvmem/region.h",
    "kvmem/layout.h",
    "kvmem/transfer.h",
    "kvmem/share.h",
    "kvmem/store.h",
    "kvmem/statistics.h",
    "kvmem/cuda.h",
    "kvmem/nixl.h",
    "kvmem/directory.h",
    "kvmem/nixl_raw.h",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn template(header: &str) -> String {
    read(&root().join("src/ffi/headers").join(format!("{header}.in")))
}

/// The lines of all templates that include declarations: the file of src/ffi, and the names.
fn inclusions() -> Vec<(String, Vec<String>)> {
    let templates = HEADERS.map(template);
    templates.iter().flat_map(|text| text.lines().filter_map(inclusion)).collect()
}

fn inclusion(line: &str) -> Option<(String, Vec<String>)> {
    let mut words = line.strip_prefix('@')?.split(' ').map(str::to_string);
    Some((words.next()?, words.collect()))
}

fn generated(header: &str) -> String {
    let named = |file: &str| -> Vec<String> {
        inclusions().into_iter().filter(|(other, _)| other == file).flat_map(|(_, names)| names).collect()
    };
    let line = |line: &str| match inclusion(line) {
        Some((file, names)) if names.is_empty() => {
            let elsewhere = named(&file);
            declarations(&file, |name| !elsewhere.iter().any(|other| other == name))
        }
        Some((file, names)) => declarations(&file, |name| names.iter().any(|other| other == name)),
        None => line.to_string(),
    };
    template(header).lines().map(|text| line(text) + "\n").collect()
}

/// Returns the chosen declarations of a file, in its order. Adjacent constants of the file are adjacent in the header.
/// cbindgen also reads the submodules of a `mod.rs`. Their declarations are left out, because a template includes those
/// files.
fn declarations(file: &str, is_chosen: impl Fn(&str) -> bool) -> String {
    let path = root().join("src/ffi").join(file);
    let source = read(&path);
    let names = exported(&source);
    let mut declared = by_name(&cbindgen_output(&path, names.iter().map(|name| name.to_string()).collect()));
    let mut text = String::new();
    let mut is_adjacent = false;
    for line in source.lines() {
        if line.is_empty() {
            is_adjacent = false;
        }
        let Some(name) = item(line).filter(|name| is_exported(name) && is_chosen(name)) else { continue };
        let declaration =
            declared.remove(name).unwrap_or_else(|| panic!("cbindgen has no declaration of {name}"));
        if !text.is_empty() {
            text += if is_adjacent { "\n" } else { "\n\n" };
        }
        text += &declaration;
        is_adjacent = declaration.contains("#define");
    }
    assert!(!text.is_empty(), "a template includes nothing of {file}");
    text
}

/// The names that a file of src/ffi declares for C.
fn exported(source: &str) -> Vec<&str> {
    source.lines().filter_map(item).filter(|name| is_exported(name)).collect()
}

fn is_exported(name: &str) -> bool {
    name.starts_with("kvmem_") || name.starts_with("KVMEM_") || name == "CUstream_st"
}

/// The name of the public item whose definition starts on this line of Rust.
fn item(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let rest =
        ["const ", "type ", "struct ", "extern \"C\" fn "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|character: char| !character.is_ascii_alphanumeric() && character != '_').next()
}

/// `names` are the types of the file; cbindgen would leave out those that no function of the file uses.
fn cbindgen_output(file: &Path, names: Vec<String>) -> String {
    let mut config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    config.export.include = names;
    let builder = cbindgen::Builder::new().with_src(file).with_config(config);
    let mut output = Vec::new();
    builder.generate().expect("cbindgen reads src/ffi").write(&mut output);
    // CUDA's own headers define a type of this name; the name of a struct can be declared any number of times.
    let text = String::from_utf8(output).unwrap();
    let text = text.replace("typedef struct CUstream_st CUstream_st", "struct CUstream_st");
    text.replace(" CUstream_st *", " struct CUstream_st *")
}

/// The declarations that cbindgen wrote, each with its comment, by name.
fn by_name(output: &str) -> BTreeMap<String, String> {
    let blocks = output.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    let edited = |block: &str| {
        let block = without_common_fields(&with_tag(&in_parentheses_if_negative(block)));
        with_filled_lines(&with_comments_behind(&without_empty_lines(&block)))
    };
    blocks.map(|block| (declared_name(block), edited(block))).collect()
}

fn declared_name(block: &str) -> String {
    let code: Vec<_> = block.lines().filter(|line| !line.starts_with("//")).collect();
    let first = code.first().expect("a declaration");
    let words = |text: &str| -> Vec<String> {
        let is_separator = |character: char| !character.is_ascii_alphanumeric() && character != '_';
        text.split(is_separator).filter(|word| !word.is_empty()).map(str::to_string).collect()
    };
    let before_parenthesis = || words(first.split('(').next().unwrap()).pop();
    let name = if *first == "typedef struct {" {
        code.last().and_then(|last| words(last).pop())
    } else if first.starts_with("#define ") || first.starts_with("struct ") {
        words(first).get(1).cloned()
    } else if first.starts_with("typedef struct ") {
        words(first).get(2).cloned()
    } else if let Some((_, callback)) = first.split_once("(*") {
        words(callback).first().cloned()
    } else if first.starts_with("typedef ") {
        words(first).pop()
    } else {
        before_parenthesis()
    };
    name.unwrap_or_else(|| panic!("no name in\n{block}"))
}

/// Adds a tag to a struct, so that it can be declared before it is defined. cbindgen's own style with tags would name
/// every type of the file by its tag; the headers name all types without `struct`.
fn with_tag(block: &str) -> String {
    block.replace("typedef struct {", &format!("typedef struct {} {{", declared_name(block)))
}

/// Removes the comments of fields that kvmem.h explains for all structs: struct_size, and what is reserved. Fields that
/// are as configured need none.
fn without_common_fields(block: &str) -> String {
    let lines: Vec<_> = block.lines().collect();
    let is_explained = |pair: &[&str]| {
        let comment = pair[0].trim().strip_prefix("/// ").unwrap_or("");
        let field = pair.get(1).map_or("", |line| line.trim());
        field == "size_t struct_size;" && comment.starts_with("sizeof(")
            || field == "uint32_t reserved;" && ["Must be 0.", "0."].contains(&comment)
            || comment == "As configured."
    };
    let kept = (0..lines.len()).filter(|&index| !is_explained(&lines[index..lines.len().min(index + 2)]));
    kept.map(|index| lines[index]).collect::<Vec<_>>().join("\n")
}

/// Removes empty lines of a comment before its parameters and statuses.
fn without_empty_lines(block: &str) -> String {
    let lines: Vec<_> = block.lines().collect();
    let is_tag = |line: &&str| line.starts_with("/// @");
    let kept = (0..lines.len()).filter(|&at| lines[at] != "///" || !lines.get(at + 1).is_some_and(is_tag));
    kept.map(|at| lines[at]).collect::<Vec<_>>().join("\n")
}

/// Moves the comment of a constant or field behind it, if both fit in one line: a group of them is then read like a table.
fn with_comments_behind(block: &str) -> String {
    let lines: Vec<_> = block.lines().collect();
    let comment = |at: usize| lines.get(at).and_then(|line| line.trim().strip_prefix("/// "));
    let joined = |at: usize| -> Option<String> {
        let text = comment(at).filter(|_| at == 0 || comment(at - 1).is_none())?;
        let code = lines.get(at + 1)?;
        let is_short = code.starts_with("#define ") || code.starts_with("    ") && code.ends_with(';');
        let line = format!("{code}  ///< {text}");
        (is_short && comment(at + 1).is_none() && line.chars().count() <= 110).then_some(line)
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = joined(at);
        at += if line.is_some() { 2 } else { 1 };
        kept.push(line.unwrap_or_else(|| lines[at - 1].to_string()));
    }
    kept.join("\n")
}

/// Fills the lines of a function's declaration; cbindgen writes one parameter per line if they do not fit into one.
fn with_filled_lines(block: &str) -> String {
    let comment: Vec<_> = block.lines().take_while(|line| line.starts_with("//")).collect();
    let code: Vec<_> = block.lines().skip(comment.len()).map(str::trim).collect();
    let is_function = code.first().is_some_and(|line| line.contains('(') && !line.starts_with(['#', 't']));
    if !is_function || code.len() == 1 {
        return block.to_string();
    }
    let mut lines: Vec<String> = comment.into_iter().map(str::to_string).collect();
    let mut last = String::new();
    for (index, parameter) in code.into_iter().enumerate() {
        if index > 0 && last.len() + 1 + parameter.len() > 110 {
            lines.push(std::mem::replace(&mut last, format!("    {parameter}")));
        } else {
            last += if index > 0 { " " } else { "" };
            last += parameter;
        }
    }
    lines.push(last);
    lines.join("\n")
}

fn in_parentheses_if_negative(block: &str) -> String {
    let line = |line: &str| match line.rsplit_once(' ') {
        Some((define, value)) if line.starts_with("#define") && value.starts_with('-') => {
            format!("{define} ({value})")
        }
        _ => line.to_string(),
    };
    block.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_committed_headers_are_the_generated_ones() {
    for header in HEADERS {
        let generated = generated(header);
        let path = root().join("include").join(header);
        if std::env::var_os("KVMEM_BLESS").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        assert!(read(&path) == generated, "include/{header} differs from src/ffi; run `make header`");
    }
}

#[test]
fn every_declaration_is_in_one_header() {
    let folder = root().join("src/ffi");
    let inclusions = inclusions();
    for path in files_below(&folder) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = read(&path);
        let file = path.strip_prefix(&folder).unwrap().display().to_string();
        let of_file: Vec<_> = inclusions.iter().filter(|(other, _)| *other == file).map(|it| &it.1).collect();
        let rests = of_file.iter().filter(|names| names.is_empty()).count();
        for name in exported(&source) {
            let times = of_file.iter().filter(|names| names.iter().any(|other| other == name)).count();
            assert_eq!(if times == 0 { rests } else { times }, 1, "{name} of {file}");
        }
        let unknown =
            of_file.iter().flat_map(|names| *names).find(|name| !exported(&source).contains(&name.as_str()));
        assert_eq!(unknown, None, "{file} does not declare it");
    }
}

/// All files of a folder and its folders.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn no_line_is_longer_than_110_columns() {
    let headers = files_below(&root().join("include"));
    let cpp = headers.iter().filter(|path| path.extension().is_some_and(|extension| extension == "hpp"));
    assert!(cpp.count() > 10, "headers for C++ are missing in {headers:?}");
    let written = headers.iter().filter(|path| path.extension().is_some_and(|extension| extension == "hpp"));
    let texts = written.map(|path| (path.display().to_string(), read(path)));
    for (name, text) in texts.chain(HEADERS.map(|header| (header.to_string(), generated(header)))) {
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            assert!(columns <= 110, "{name}:{} has {columns} columns", index + 1);
        }
    }
}

#[test]
fn an_opaque_type_is_the_first_declaration_of_its_section() {
    let texts = HEADERS.map(generated);
    let mut count = 0;
    for section in texts.iter().flat_map(|text| text.split("/* ---- ").skip(1)) {
        let blocks: Vec<_> = section.split("\n\n").skip(1).collect();
        let is_opaque = |block: &&str| {
            let last = block.trim().lines().last().unwrap_or("");
            last.starts_with("typedef struct ") && last.ends_with(';')
        };
        let opaque = blocks.iter().filter(|block| is_opaque(block)).count();
        let leading = blocks.iter().take_while(|block| is_opaque(block)).count();
        assert_eq!(opaque, leading, "{}", section.lines().next().unwrap_or(""));
        count += opaque;
    }
    assert_eq!(count, 21, "every opaque type is in a section");
}

#[test]
fn no_type_is_defined_twice() {
    let mut count = BTreeMap::new();
    for header in HEADERS {
        for line in generated(header).lines().filter(|line| line.starts_with("typedef ")) {
            *count.entry(line.to_string()).or_insert(0) += 1;
        }
    }
    let twice: Vec<_> = count.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "C99 forbids a second definition: {twice:?}");
}
