// SPDX-License-Identifier: Apache-2.0
//! The declarations here are those of the header that nixl-sys was built from.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// The header of the very version that is linked.
fn header() -> String {
    without_comments(&source("wrapper.h"))
}

/// A file of the crate, in the very version that is linked.
fn source(file: &str) -> String {
    std::fs::read_to_string(crate_folder().join(file)).unwrap()
}

/// The folder of the crate in the registry, which is there on every machine that has built this.
fn crate_folder() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata = String::from_utf8(output.stdout).unwrap();
    let manifest = metadata
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split_once('"'))
        .map(|(path, _)| path)
        .find(|path| path.contains("/nixl-sys-"))
        .expect("nixl-sys is a dependency");
    PathBuf::from(manifest.trim_end_matches("Cargo.toml"))
}

/// The fields of a struct that begins so, with one space between words.
fn fields(source: &str, begin: &str) -> Vec<String> {
    let fields = source.split_once(begin).unwrap().1.split_once('}').unwrap().0;
    let fields = fields.split(';').map(|field| field.split_whitespace().collect::<Vec<_>>().join(" "));
    fields.filter(|field| !field.is_empty()).collect()
}

/// `Backend::is_same` reads it.
#[test]
fn a_handle_of_a_backend_is_one_pointer() {
    let fields = fields(&source("wrapper.cpp"), "struct nixl_capi_backend_s {");
    assert_eq!(fields.concat().replace("* ", " *"), "nixlBackendH *backend");
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out += before;
        rest = after.split_once("*/").unwrap().1;
    }
    out += rest;
    out.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join(" ")
}

/// name → (argument types, result), as Rust writes them.
fn prototypes(header: &str) -> HashMap<String, (Vec<String>, String)> {
    let mut found = HashMap::new();
    for statement in header.split(';') {
        let Some((head, arguments)) = statement.split_once('(') else { continue };
        let mut words = head.split_whitespace().rev();
        let (Some(name), Some(result)) = (words.next(), words.next()) else { continue };
        let arguments = arguments.trim().trim_end_matches(')');
        let types =
            arguments.split(',').map(str::trim).filter(|text| !text.is_empty()).map(rust_type).collect();
        found.insert(name.to_string(), (types, result.to_string()));
    }
    found
}

/// "const char *name" → "*const c_char".
fn rust_type(argument: &str) -> String {
    let stars = argument.matches('*').count();
    let words: Vec<_> =
        argument.split(|c: char| c.is_whitespace() || c == '*').filter(|w| !w.is_empty()).collect();
    let is_const = words[0] == "const";
    let base = match words[usize::from(is_const)] {
        "char" => "c_char",
        "void" => "c_void",
        "int" => "c_int",
        "size_t" | "uintptr_t" => "usize",
        "uint16_t" => "u16",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        other => other,
    };
    match (stars, is_const) {
        (0, _) => base.to_string(),
        (1, true) => format!("*const {base}"),
        (1, false) => format!("*mut {base}"),
        (_, true) => format!("*mut *const {base}"),
        (_, false) => format!("*mut *mut {base}"),
    }
}

#[test]
fn every_signature_matches_the_crate() {
    let prototypes = prototypes(&header());
    assert!(prototypes.len() > 90, "the header was not understood: {} prototypes", prototypes.len());
    for (name, arguments) in SIGNATURES {
        let (theirs, their_result) =
            prototypes.get(*name).unwrap_or_else(|| panic!("{name} is not in the header"));
        assert_eq!(&arguments.to_vec(), theirs, "{name}");
        assert_eq!(their_result, "nixl_capi_status_t", "{name}");
    }
}

#[test]
fn every_constant_matches_the_crate() {
    let header = header();
    for (name, value) in [
        ("NIXL_CAPI_SUCCESS", i64::from(NIXL_CAPI_SUCCESS)),
        ("NIXL_CAPI_IN_PROG", i64::from(NIXL_CAPI_IN_PROG)),
        ("NIXL_CAPI_ERROR_BACKEND", i64::from(NIXL_CAPI_ERROR_BACKEND)),
        ("NIXL_CAPI_ERROR_NOT_FOUND", i64::from(NIXL_CAPI_ERROR_NOT_FOUND)),
        ("NIXL_CAPI_MEM_DRAM", i64::from(NIXL_CAPI_MEM_DRAM)),
        ("NIXL_CAPI_MEM_VRAM", i64::from(NIXL_CAPI_MEM_VRAM)),
        ("NIXL_CAPI_ERROR_NO_TELEMETRY", i64::from(NIXL_CAPI_ERROR_NO_TELEMETRY)),
        ("NIXL_CAPI_MEM_BLOCK", i64::from(NIXL_CAPI_MEM_BLOCK)),
        ("NIXL_CAPI_MEM_OBJECT", i64::from(NIXL_CAPI_MEM_OBJECT)),
        ("NIXL_CAPI_MEM_FILE", i64::from(NIXL_CAPI_MEM_FILE)),
        ("NIXL_CAPI_XFER_OP_READ", i64::from(NIXL_CAPI_XFER_OP_READ)),
        ("NIXL_CAPI_XFER_OP_WRITE", i64::from(NIXL_CAPI_XFER_OP_WRITE)),
        ("NIXL_CAPI_THREAD_SYNC_NONE", 0),
        ("NIXL_CAPI_THREAD_SYNC_STRICT", 1),
        ("NIXL_CAPI_THREAD_SYNC_RW", 2),
    ] {
        assert!(header.contains(&format!("{name} = {value},")), "{name} = {value}");
    }
    for status in -6..=1 {
        let name = status_name(status);
        assert!(header.contains(&format!("{name} = {status},")), "{name} = {status}");
    }
}

#[test]
fn the_structs_match_the_crate() {
    let config = fields(&header(), "typedef struct nixl_capi_agent_config_s {");
    let expected = [
        "bool enable_prog_thread",
        "bool enable_listen_thread",
        "int listen_port",
        "nixl_capi_thread_sync_t thread_sync",
        "unsigned int num_workers",
        "uint64_t pthr_delay_us",
        "uint64_t lthr_delay_us",
        "bool capture_telemetry",
    ];
    assert_eq!(config, expected);
    let telemetry = fields(&header(), "struct nixl_capi_xfer_telemetry_s {");
    let expected = ["start_time_us", "post_duration_us", "xfer_duration_us", "total_bytes", "desc_count"];
    assert_eq!(telemetry, expected.map(|name| format!("uint64_t {name}")));
}

/// The public functions of the crate, as `Type::function`.
fn public_functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            public_functions(&path, found);
        } else {
            functions_of(&std::fs::read_to_string(&path).unwrap(), found);
        }
    }
}

/// The code of the crate is formatted: a block of a type begins and ends in the first column.
fn functions_of(source: &str, found: &mut BTreeSet<String>) {
    // The type whose block this is, and whether all functions of the block are public.
    let mut block: Option<(String, bool)> = None;
    for line in source.lines() {
        if line.starts_with('}') {
            block = None;
        }
        let words = line.trim_start().trim_start_matches("pub ").trim_start_matches("unsafe ");
        if !line.starts_with(' ') && (words.starts_with("impl") || words.starts_with("trait ")) {
            let header = words.split('{').next().unwrap();
            let is_of_trait = header.contains(" for ");
            let name = type_name(header);
            block = (!is_of_trait).then(|| (name, words.starts_with("trait ")));
            continue;
        }
        let Some(function) = words.strip_prefix("fn ") else { continue };
        let function = function.split(['(', '<']).next().unwrap();
        let is_public = line.trim_start().starts_with("pub ");
        match &block {
            Some((name, all)) if is_public || *all => drop(found.insert(format!("{name}::{function}"))),
            None if is_public => drop(found.insert(function.to_string())),
            _ => {}
        }
    }
}

/// "impl<'a, T: X> Name<'a>" → "Name".
fn type_name(header: &str) -> String {
    let rest = header.trim_start_matches("impl").trim_start_matches("trait");
    let rest = match rest.strip_prefix('<') {
        Some(generics) => generics.split_once("> ").unwrap().1,
        None => rest,
    };
    rest.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap().to_string()
}

/// The functions in the first column of the table.
fn listed_functions(page: &str) -> BTreeSet<String> {
    let section = page.split_once("## From nixl-sys").unwrap().1;
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let first_columns = rows.map(|row| row.split(" | ").next().unwrap());
    first_columns
        .flat_map(|names| names.split(['`', ',', ' ']).map(str::to_string))
        .filter(|n| !n.is_empty())
        .collect()
}

#[test]
fn every_function_of_the_crate_is_in_the_table_of_the_page() {
    let mut public = BTreeSet::new();
    public_functions(&crate_folder().join("src"), &mut public);
    assert!(public.len() > 120, "the source was not understood: {} functions", public.len());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/nixl.md")).unwrap();
    let listed = listed_functions(&page);
    let missing: Vec<_> = public.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/nixl.md has no row for {missing:?}");
    let unknown: Vec<_> = listed.difference(&public).collect();
    assert!(
        unknown.is_empty(),
        "docs/nixl.md has rows for functions that nixl-sys does not have: {unknown:?}"
    );
}
