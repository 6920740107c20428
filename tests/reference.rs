// SPDX-License-Identifier: Apache-2.0
//! docs/reference.md lists the functions of the headers. `make header` writes it anew.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::path::Path;

/// The headers in the order in which the page lists them, each with what it contains.
const HEADERS: [(&str, &str); 3] = [
    ("kvmem.h", "what every engine needs"),
    ("kvmem_cuda.h", "the CUDA driver: devices, streams, copy rates, IPC handles, virtual memory management"),
    ("kvmem_nixl.h", "NIXL: agents, registrations, metadata, layouts of peers, notifications"),
];

/// Groups of functions that belong to no type, by prefix.
const PREFIXES: [(&str, &str); 5] = [
    ("kvmem_nixl_", "The NIXL library, which is loaded at run time."),
    ("kvmem_cuda_", "The CUDA driver, which is loaded at run time, and its GPUs."),
    ("kvmem_ipc_", "Handles of GPU memory for other processes."),
    ("kvmem_vmm_", "The driver's virtual memory management."),
    ("kvmem_log_", "The log."),
];

/// The group of all other functions.
const OTHER: (&str, &str) = ("kvmem_", "Names and versions.");

struct Declaration {
    name: String,
    summary: String,
}

struct Group {
    prefix: String,
    summary: String,
    functions: Vec<Declaration>,
}

#[derive(Default)]
struct Header {
    types: Vec<Declaration>,
    functions: Vec<Declaration>,
}

#[test]
fn the_committed_reference_lists_the_functions_of_the_headers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = page(root);
    let path = root.join("docs/reference.md");
    if std::env::var_os("KVMEM_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).expect("docs/reference.md is there");
    assert!(
        committed == generated,
        "docs/reference.md does not list the functions of the headers; run `make header`"
    );
}

#[test]
fn a_header_is_read_with_its_first_sentences() {
    let header = read(
        "/// A span of memory. It holds what\n/// lies in it.\ntypedef struct kvmem_region kvmem_region;\n\n\
         /// Destroys a region handle. The memory\n/// is freed.\n///\n/// @param region a region\n\
         void kvmem_region_destroy(kvmem_region *region);\n\n\
         /// Returns | the size\n/// in bytes.\nkvmem_status kvmem_region_size(const kvmem_region *region,\n    \
         kvmem_error **error);\n\
         /// Called back.\ntypedef void (*kvmem_callback)(void *user_data);\n",
    );
    let named =
        |list: &[Declaration]| list.iter().map(|d| format!("{}: {}", d.name, d.summary)).collect::<Vec<_>>();
    assert_eq!(named(&header.types), ["kvmem_region: A span of memory."]);
    assert_eq!(
        named(&header.functions),
        [
            "kvmem_region_destroy: Destroys a region handle.",
            "kvmem_region_size: Returns \\| the size in bytes.",
        ]
    );
}

fn page(root: &Path) -> String {
    let headers = HEADERS.map(|(name, contents)| {
        let text = std::fs::read_to_string(root.join("include").join(name)).expect("the header is there");
        (name, contents, read(&text))
    });
    let types: Vec<&Declaration> = headers.iter().flat_map(|(_, _, header)| &header.types).collect();
    let mut page = String::from(INTRODUCTION);
    for (name, contents, header) in &headers {
        writeln!(page, "| [{name}](../include/{name}) | {} | {contents} |", header.functions.len()).unwrap();
    }
    for (name, _, header) in &headers {
        assert!(!header.functions.is_empty(), "{name} declares functions");
        writeln!(page, "\n## {name}").unwrap();
        write_functions(&mut page, header, &types);
    }
    page
}

const INTRODUCTION: &str = "\
# Reference
All functions, by the type that they work on. The comments in the headers are the reference: what a function does, what
it returns, who owns what. This page is generated from them by `make header`.

| header | functions | contains |
|---|---|---|
";

fn write_functions(page: &mut String, header: &Header, types: &[&Declaration]) {
    let (options, functions): (Vec<_>, Vec<_>) =
        header.functions.iter().partition(|f| f.name.ends_with("_init"));
    for group in groups(&functions, types) {
        writeln!(page, "\n### {}\n{}\n\n| function | |\n|---|---|", group.prefix, group.summary).unwrap();
        for function in &group.functions {
            writeln!(page, "| `{}` | {} |", function.name, function.summary).unwrap();
        }
    }
    if !options.is_empty() {
        writeln!(page, "\n### Defaults\nEach fills one struct with its defaults:\n").unwrap();
        options.iter().for_each(|function| writeln!(page, "- `{}`", function.name).unwrap());
    }
}

/// The functions by type, or by prefix, in the order in which the header has the first of each group.
fn groups(functions: &[&Declaration], types: &[&Declaration]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for function in functions {
        let (prefix, summary) = group_of(&function.name, types);
        let index = groups.iter().position(|group| group.prefix == prefix).unwrap_or_else(|| {
            groups.push(Group { prefix, summary, functions: Vec::new() });
            groups.len() - 1
        });
        let copy = Declaration { name: function.name.clone(), summary: function.summary.clone() };
        groups[index].functions.push(copy);
    }
    groups
}

fn group_of(function: &str, types: &[&Declaration]) -> (String, String) {
    let of_type = |declared: &&&Declaration| function.starts_with(&format!("{}_", declared.name));
    if let Some(found) = types.iter().filter(of_type).max_by_key(|declared| declared.name.len()) {
        return (found.name.clone(), found.summary.clone());
    }
    let (prefix, summary) =
        PREFIXES.into_iter().find(|(prefix, _)| function.starts_with(prefix)).unwrap_or(OTHER);
    (format!("{prefix}*"), summary.to_owned())
}

/// Opaque types and functions of a header, each with the first sentence of its comment.
fn read(text: &str) -> Header {
    let mut header = Header::default();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
            comment.push('\n');
            continue;
        }
        let summary = first_sentence(&comment);
        if let Some(name) = opaque_type(line) {
            header.types.push(Declaration { name, summary });
        } else if let Some(name) = function(line) {
            header.functions.push(Declaration { name, summary });
        }
        comment.clear();
    }
    header
}

/// `typedef struct kvmem_x kvmem_x;`
fn opaque_type(line: &str) -> Option<String> {
    let name = line.strip_prefix("typedef struct ")?.strip_suffix(';')?.split(' ').nth(1)?;
    name.starts_with("kvmem_").then(|| name.to_owned())
}

/// The first line of a declaration: `kvmem_status kvmem_x_verb(...`.
fn function(line: &str) -> Option<String> {
    if line.starts_with([' ', '#', '/', '}']) || line.starts_with("typedef") {
        return None;
    }
    let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
    name.starts_with("kvmem_").then(|| name.to_owned())
}

/// The first sentence of a comment, on one line, as a cell of a table.
fn first_sentence(comment: &str) -> String {
    let paragraph: Vec<&str> = comment
        .lines()
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with('@'))
        .collect();
    let paragraph = paragraph.join(" ").replace('|', "\\|");
    match paragraph.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => paragraph,
    }
}
