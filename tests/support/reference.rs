// SPDX-License-Identifier: Apache-2.0
//! docs/reference.md lists the functions of the headers. `make header` writes it again.

use std::fmt::Write as _;

/// The headers in the order in which the page lists them, each with what it contains.
const HEADERS: [(&str, &str); 11] = [
    ("kvmem/base.h", "statuses, errors, blobs, log, versions"),
    ("kvmem/region.h", "memory on one tier"),
    ("kvmem/layout.h", "where each block is located in regions"),
    ("kvmem/transfer.h", "blocks are moved between two layouts; queues of completions"),
    ("kvmem/share.h", "regions and layouts for other processes; brokers"),
    ("kvmem/store.h", "blocks under keys in a folder, which survive the process"),
    ("kvmem/statistics.h", "counters of the process, also as text for Prometheus"),
    ("kvmem/cuda.h", "the CUDA driver: streams, devices, IPC handles, virtual memory management, copy rates"),
    ("kvmem/nixl.h", "NIXL: agents, metadata, layouts of peers, registrations, notifications"),
    ("kvmem/directory.h", "agents and layouts found by name, in a folder or in etcd"),
    ("kvmem/nixl_raw.h", "NIXL as it is: requests on raw descriptors, views, queries, plugins, telemetry"),
];

const INTRODUCTION: &str = "\
# Reference
All functions, in the order of the headers. The comments in the headers are the reference: what a function does, what it
returns, and which objects the caller owns. `make header` generates this page from them.

| header | functions | contains |
|---|---|---|
";

struct Function {
    name: String,
    summary: String,
}

/// The functions under one `/* ---- Title ---- */` of a header.
struct Section {
    title: String,
    functions: Vec<Function>,
}

#[test]
fn the_committed_reference_lists_the_functions_of_the_headers() {
    let generated = page();
    let path = super::root().join("docs/reference.md");
    if std::env::var_os("KVMEM_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).expect("docs/reference.md exists");
    assert!(
        committed == generated,
        "docs/reference.md does not list the functions of the headers; run `make header`"
    );
}

#[test]
fn functions_are_listed_by_section_with_their_first_sentences() {
    let sections = read(
        "/* ---- Regions ---- */\n\n/// A span of memory.\ntypedef struct kvmem_region kvmem_region;\n\n\
         /// Destroys a region handle. The memory\n/// is freed.\n///\n/// @param region a region\n\
         void kvmem_region_destroy(kvmem_region *region);\n\n\
         /* ---- Regions: information ---- */\n\n\
         /// Returns | the size\n/// in bytes.\nkvmem_status kvmem_region_size(const kvmem_region *region,\n    \
         kvmem_error **error);\n\
         /// Called back.\ntypedef void (*kvmem_callback)(void *user_data);\n\
         /// A name, a\n/// string.\nconst char *kvmem_name(void);\n",
    );
    let mut text = String::new();
    for section in &sections {
        writeln!(text, "{}", section.title).unwrap();
        section.functions.iter().for_each(|f| writeln!(text, "- {}: {}", f.name, f.summary).unwrap());
    }
    assert_eq!(
        text,
        "Regions\n- kvmem_region_destroy: Destroys a region handle.\nRegions: information\n\
         - kvmem_region_size: Returns \\| the size in bytes.\n- kvmem_name: A name, a string.\n"
    );
}

/// Generates the page from src/ffi, because another test may be writing the headers.
fn page() -> String {
    let mut contents = String::from(INTRODUCTION);
    let mut lists = String::new();
    for (name, purpose) in HEADERS {
        let sections = read(&super::generated(name));
        let count: usize = sections.iter().map(|section| section.functions.len()).sum();
        assert!(count > 0, "{name} declares functions");
        writeln!(contents, "| [{name}](../include/{name}) | {count} | {purpose} |").unwrap();
        writeln!(lists, "\n## {name}").unwrap();
        sections.iter().for_each(|section| write_section(&mut lists, section));
    }
    contents + &lists
}

fn write_section(page: &mut String, section: &Section) {
    if section.functions.is_empty() {
        return;
    }
    writeln!(page, "\n### {}\n\n| function | |\n|---|---|", section.title).unwrap();
    for function in &section.functions {
        writeln!(page, "| `{}` | {} |", function.name, function.summary).unwrap();
    }
}

/// Returns the sections of a header with their functions and the first sentences of the comments.
fn read(text: &str) -> Vec<Section> {
    let mut sections = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
            comment.push('\n');
            continue;
        }
        if let Some(title) = line.strip_prefix("/* ---- ").and_then(|rest| rest.strip_suffix(" ---- */")) {
            sections.push(Section { title: title.to_owned(), functions: Vec::new() });
        } else if let Some(name) = function(line) {
            let section = sections.last_mut().expect("a function comes after a title");
            section.functions.push(Function { name, summary: first_sentence(&comment) });
        }
        comment.clear();
    }
    sections
}

/// Returns the name of a function from the first line of its declaration: `kvmem_status kvmem_x_verb(...`.
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
