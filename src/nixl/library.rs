// SPDX-License-Identifier: Apache-2.0
//! Finding libnixl_capi, and proving that every function called here is in it before the first call.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use once_cell::sync::OnceCell;

use super::dynamic::{DynamicEntry, Section};
use super::signals;
use super::sys::{self, Functions};
use crate::base::open_library::{OpenLibrary, file_of};
use crate::base::process::{self, ForkCheckedLock};
use crate::base::{Result, ensure, fail, log};

/// The file name, which is also the SONAME, of the C API that kvmem calls, and that of the versioned C API that NIXL plans.
/// A file of either name is tried: its SONAME decides which API it has.
const FILE_NAMES: [&str; 2] = [FILE_NAME, "libnixl_capi.so.0"];
const FILE_NAME: &str = "libnixl_capi.so";
const ENVIRONMENT: &str = "KVMEM_NIXL_LIBRARY";

/// The loaded library. It is never unloaded.
pub struct Library {
    path: PathBuf,
    loaded_in: u64,
}

static LIBRARY: OnceCell<Library> = OnceCell::new();
static LOADING: ForkCheckedLock = ForkCheckedLock::new();

/// Loads the library from `path`, which is a file or its folder. Without a path it uses `$KVMEM_NIXL_LIBRARY`, unless the
/// process is privileged, and without that the search path of the loader. A failure is not stored: the next call may succeed.
pub fn load(path: Option<&Path>) -> Result<&'static Library> {
    let Some(_turn) = LOADING.lock() else {
        fail!(
            InvalidState,
            "NIXL was being loaded when this process was forked, and UCX does not work in a forked child; use exec"
        );
    };
    if let Some(library) = LIBRARY.get() {
        return reuse(library, path);
    }
    ensure_environment()?;
    let named_by_environment = path.is_none() && process::library_variable(ENVIRONMENT).is_some();
    load_first(candidate(path)).map_err(|error| match named_by_environment {
        true => error.followed_by(format!("the environment variable {ENVIRONMENT} names it")),
        false => error,
    })
}

fn load_first(candidate: PathBuf) -> Result<&'static Library> {
    let _dispositions = signals::Preserved::new();
    let (library, candidate) = open(candidate)?;
    ensure_known_api(&library, &candidate)?;
    sys::install(resolve(&library, &candidate)?);
    let path = library.address_of(c"nixl_capi_is_stub").and_then(|address| file_of(address.as_ptr()));
    let path = path.unwrap_or(candidate);
    library.keep();
    log!(Info, "NIXL loaded from {}", path.display());
    Ok(LIBRARY.get_or_init(|| Library { path, loaded_in: process::generation() }))
}

/// The library, if it is loaded.
pub fn loaded() -> Option<&'static Library> {
    LIBRARY.get()
}

impl Library {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Fails in a privileged process if NIXL or UCX would load plugins from a folder that the environment names.
fn ensure_environment() -> Result<()> {
    let named =
        [PLUGIN_DIRECTORY, "UCX_MODULE_DIR"].into_iter().find(|name| std::env::var_os(name).is_some());
    match named.filter(|_| process::is_privileged()) {
        Some(name) => fail!(
            PermissionDenied,
            "this process has more rights than the user who started it, and NIXL would load plugins from the folder in {name}, which \
             that user may have chosen; unset {name}"
        ),
        None => Ok(()),
    }
}

fn reuse(library: &'static Library, path: Option<&Path>) -> Result<&'static Library> {
    ensure!(
        library.loaded_in == process::generation(),
        InvalidState,
        "NIXL was loaded before this process was forked, and UCX does not work in a forked child; use exec"
    );
    if let Some(wanted) = path {
        let wanted = in_folder(wanted);
        let same = wanted.canonicalize().ok() == library.path.canonicalize().ok();
        ensure!(
            same,
            AlreadyExists,
            "NIXL is already loaded from {}; {} cannot replace it in this process",
            library.path.display(),
            wanted.display()
        );
    }
    Ok(library)
}

fn candidate(path: Option<&Path>) -> PathBuf {
    let from_environment = || process::library_variable(ENVIRONMENT);
    match path.map(Path::to_path_buf).or_else(from_environment) {
        Some(path) => in_folder(&path),
        None => PathBuf::from(FILE_NAME),
    }
}

fn in_folder(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_path_buf();
    }
    let named = FILE_NAMES.map(|name| path.join(name)).into_iter().find(|file| file.exists());
    named.unwrap_or_else(|| path.join(FILE_NAME))
}

/// Opens a file, or what the loader finds by one of the names. Returns the name that it was opened by.
fn open(candidate: PathBuf) -> Result<(OpenLibrary, PathBuf)> {
    if candidate != Path::new(FILE_NAME) {
        return open_file(&candidate).map(|library| (library, candidate));
    }
    let other = PathBuf::from(FILE_NAMES[1]);
    match open_file(&candidate) {
        Err(error) if error.message().contains("is missing") => {
            open_file(&other).map(|library| (library, other))
        }
        opened => opened.map(|library| (library, candidate)),
    }
}

fn open_file(path: &Path) -> Result<OpenLibrary> {
    let by_name = FILE_NAMES.iter().any(|name| path == Path::new(name));
    ensure!(
        by_name || path.exists(),
        UnavailableNixl,
        "NIXL is missing: there is no file {}; give the path of {FILE_NAME}",
        path.display()
    );
    let reason = match OpenLibrary::open(path) {
        Ok(library) => return Ok(library),
        Err(reason) => reason,
    };
    if by_name && reason.starts_with(FILE_NAME) && reason.contains("No such file") {
        fail!(
            UnavailableNixl,
            "NIXL is missing: the loader does not find {FILE_NAME}; give its path, or set {ENVIRONMENT}. The Python \
             wheels nixl-cu12 and nixl-cu13 contain it (pip install nixl-cu12, then see docs/nixl.md)"
        );
    }
    fail!(UnavailableNixl, "NIXL is broken: {} does not load: {reason}", path.display())
}

/// Fails for a library whose SONAME has a version: its functions have the names of those that kvmem calls, and may have other
/// parameters.
fn ensure_known_api(library: &OpenLibrary, path: &Path) -> Result<()> {
    let Some(soname) = soname_of(library) else { return Ok(()) };
    let Some(version) = soname.strip_prefix(FILE_NAME).and_then(|rest| rest.strip_prefix('.')) else {
        return Ok(());
    };
    fail!(
        UnavailableNixl,
        "NIXL has another C API: the SONAME of {} is {soname}, so it has version {version} of the versioned C API, whose \
         signatures differ; kvmem {} calls the C API of NIXL 1.5, with the SONAME {FILE_NAME}. Install NIXL 1.5, or a \
         version of kvmem for {soname}",
        path.display(),
        env!("CARGO_PKG_VERSION")
    );
}

/// The SONAME of an open library; `None` if it has none.
fn soname_of(library: &OpenLibrary) -> Option<String> {
    const SONAME: i64 = 14;
    /// The public fields of `struct link_map`.
    #[repr(C)]
    struct LinkMap {
        base: usize,
        name: *const c_char,
        dynamic: *const DynamicEntry,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: an open handle; the map lives as long as it.
    let section = unsafe {
        if libc::dlinfo(library.raw(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) != 0 || map.is_null() {
            return None;
        }
        Section::new((*map).base, (*map).dynamic)
    };
    let name = section.string(section.value(SONAME)?)?;
    Some(name.to_string_lossy().into_owned())
}

/// Resolves every function that kvmem calls. Fails for a library that lacks one, and for the stubs of NIXL's own build.
fn resolve(library: &OpenLibrary, path: &Path) -> Result<Functions> {
    // SAFETY: nixl-sys has the same signatures, and the library is never unloaded once this succeeds.
    let functions = unsafe { Functions::resolve(|symbol| library.address_of(symbol)) };
    let is_stub = library.address_of(c"nixl_capi_is_stub");
    match (functions, is_stub) {
        (Ok(functions), Some(is_stub)) => {
            // SAFETY: takes nothing, and returns a bool in every version.
            let is_stub =
                unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> bool>(is_stub)() };
            ensure!(!is_stub, UnavailableNixl, "NIXL is broken: {} is a stub", path.display());
            Ok(functions)
        }
        (functions, _) => {
            let missing = functions.err().unwrap_or("nixl_capi_is_stub");
            fail!(
                UnavailableNixl,
                "NIXL is too old: {} has no function {missing}; version 1.5 has it",
                path.display()
            )
        }
    }
}

/// The environment variable that names the directory of NIXL's plugins.
const PLUGIN_DIRECTORY: &str = "NIXL_PLUGIN_DIR";

/// The directory where NIXL looks for plugins, and whether the environment names it.
fn plugin_directory() -> Option<(PathBuf, bool)> {
    let named = std::env::var_os(PLUGIN_DIRECTORY).filter(|value| !value.is_empty());
    let beside = || loaded().and_then(|library| library.path().parent()).map(|folder| folder.join("plugins"));
    named.map(|path| (PathBuf::from(path), true)).or_else(|| beside().map(|path| (path, false)))
}

/// The directory where NIXL looks for plugins, for messages.
pub(super) fn searched_for_plugins() -> String {
    match plugin_directory() {
        Some((path, true)) => format!("{}, which {PLUGIN_DIRECTORY} names", path.display()),
        Some((path, false)) => {
            format!("{}; {PLUGIN_DIRECTORY} names another directory", path.display())
        }
        None => format!("the directory that {PLUGIN_DIRECTORY} names"),
    }
}

/// The file of one of NIXL's plugins, if it is where NIXL looks.
pub(super) fn plugin_file(plugin: &str) -> Option<PathBuf> {
    Some(plugin_directory()?.0.join(format!("libplugin_{plugin}.so")))
}

/// Why the loader does not load a plugin of NIXL: mostly a missing library. NIXL reports it on stderr only.
pub(super) fn plugin_failure(plugin: &str) -> Option<String> {
    OpenLibrary::open(&plugin_file(plugin)?).err()
}

/// A plugin that NIXL has loaded just before, open again.
pub(super) fn open_plugin(plugin: &str) -> Option<OpenLibrary> {
    OpenLibrary::open(&plugin_file(plugin)?).ok()
}
