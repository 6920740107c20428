// SPDX-License-Identifier: Apache-2.0
//! The declarations here are those of the header that nixl-sys was built from.

use std::collections::HashMap;
use std::process::Command;

use super::*;

/// The header of the very version that is linked.
fn header() -> String {
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
    let text = std::fs::read_to_string(manifest.replace("Cargo.toml", "wrapper.h")).unwrap();
    without_comments(&text)
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
    for (name, arguments, result) in SIGNATURES {
        let (theirs, their_result) =
            prototypes.get(*name).unwrap_or_else(|| panic!("{name} is not in the header"));
        assert_eq!(&arguments.to_vec(), theirs, "{name}");
        assert_eq!(result, their_result, "{name}");
    }
}

#[test]
fn every_constant_matches_the_crate() {
    let header = header();
    for (name, value) in [
        ("NIXL_CAPI_SUCCESS", i64::from(NIXL_CAPI_SUCCESS)),
        ("NIXL_CAPI_IN_PROG", i64::from(NIXL_CAPI_IN_PROG)),
        ("NIXL_CAPI_ERROR_NOT_FOUND", i64::from(NIXL_CAPI_ERROR_NOT_FOUND)),
        ("NIXL_CAPI_MEM_DRAM", i64::from(NIXL_CAPI_MEM_DRAM)),
        ("NIXL_CAPI_MEM_VRAM", i64::from(NIXL_CAPI_MEM_VRAM)),
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
fn the_agent_configuration_matches_the_crate() {
    let header = header();
    let fields = header.split_once("typedef struct nixl_capi_agent_config_s {").unwrap().1;
    let fields: Vec<Vec<&str>> =
        fields.split_once('}').unwrap().0.split(';').map(|f| f.split_whitespace().collect()).collect();
    let expected: [Vec<&str>; 9] = [
        vec!["bool", "enable_prog_thread"],
        vec!["bool", "enable_listen_thread"],
        vec!["int", "listen_port"],
        vec!["nixl_capi_thread_sync_t", "thread_sync"],
        vec!["unsigned", "int", "num_workers"],
        vec!["uint64_t", "pthr_delay_us"],
        vec!["uint64_t", "lthr_delay_us"],
        vec!["bool", "capture_telemetry"],
        vec![],
    ];
    assert_eq!(fields, expected);
}
