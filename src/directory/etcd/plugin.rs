// SPDX-License-Identifier: Apache-2.0
//! libkvmem_etcd.so, the client of etcd: found beside libkvmem.so when the first directory in etcd is created.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use once_cell::sync::OnceCell;

use super::protocol::{ABI, Api};
use crate::base::open_library::{OpenLibrary, file_of};
use crate::base::thread::SignalsBlocked;
use crate::base::{Result, ensure, error, fail, guarded, log};

/// The file name contains the SOVERSION of libkvmem.so, so that several versions can be installed.
const FILE_NAME: &str =
    concat!("libkvmem_etcd.so.", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
/// The function that returns the [`Api`].
const ENTRY_POINT: &CStr = c"kvmem_etcd_api";
const ENVIRONMENT: &str = "KVMEM_ETCD_LIBRARY";

/// Takes a message of the client, and returns the decision that it asks for.
pub type Receiver = Box<dyn Fn(&[u8]) -> u32 + Send + Sync>;

/// A client of etcd. Dropping it ends its thread.
pub struct Plugin {
    api: &'static Api,
    client: NonNull<c_void>,
    /// What `receive` is called with.
    receiver: NonNull<Receiver>,
}

// SAFETY: `send` may be called on any thread at any time before `close`; the receiver is Send and Sync.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl Plugin {
    /// Loads the library, and starts a client with options in CBOR.
    pub fn open(options: &[u8], receiver: Receiver) -> Result<Self> {
        let api = api()?;
        let receiver = NonNull::from(Box::leak(Box::new(receiver)));
        let _inherited = SignalsBlocked::begin();
        // SAFETY: readable bytes; the receiver lives until the client is closed.
        let client =
            unsafe { (api.open)(options.as_ptr(), options.len(), receive, receiver.as_ptr().cast()) };
        match NonNull::new(client) {
            Some(client) => Ok(Self { api, client, receiver }),
            None => {
                // SAFETY: leaked above; without a client nothing refers to it.
                drop(unsafe { Box::from_raw(receiver.as_ptr()) });
                fail!(
                    OutOfMemory,
                    "start the thread of the client of etcd: there is no memory or thread for it"
                )
            }
        }
    }

    pub fn send(&self, command: &[u8]) {
        // SAFETY: a live client; readable bytes.
        unsafe { (self.api.send)(self.client.as_ptr(), command.as_ptr(), command.len()) };
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: a live client, which is not used again. Afterwards nothing calls the receiver.
        unsafe {
            (self.api.close)(self.client.as_ptr());
            drop(Box::from_raw(self.receiver.as_ptr()));
        }
    }
}

unsafe extern "C" fn receive(context: *mut c_void, bytes: *const u8, size: usize) -> u32 {
    // SAFETY: the receiver of a client that is not closed, and readable bytes, by contract.
    let (receiver, bytes) =
        unsafe { (&*context.cast::<Receiver>(), std::slice::from_raw_parts(bytes, size)) };
    guarded(|| receiver(bytes)).unwrap_or_else(|error| {
        log!(Error, "the thread of a directory: {error}");
        0
    })
}

/// The functions of the library, which is loaded once and never unloaded. A failure is not stored.
fn api() -> Result<&'static Api> {
    static LOADED: OnceCell<&'static Api> = OnceCell::new();
    LOADED.get_or_try_init(load).copied()
}

fn load() -> Result<&'static Api> {
    let path = path()?;
    ensure!(
        path.exists(),
        Unsupported,
        "this installation of kvmem has no client of etcd: there is no file {}; install it, or use a folder",
        path.display()
    );
    let library = OpenLibrary::open(&path)
        .map_err(|reason| error!(Unsupported, "load the client of etcd: {reason}"))?;
    let refused = |reason: String| {
        error!(Unsupported, "{} is not the client of etcd for this kvmem: {reason}", path.display())
    };
    let entry = library.address_of(ENTRY_POINT);
    let entry =
        entry.ok_or_else(|| refused(format!("it has no function {}", ENTRY_POINT.to_string_lossy())))?;
    // SAFETY: every version of the function takes nothing, and returns a static struct that starts with its version.
    let api = unsafe {
        let entry = std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn() -> *const Api>(entry);
        &*entry()
    };
    if api.abi != ABI {
        return Err(refused(format!("its interface has version {}, and version {ABI} is needed", api.abi)));
    }
    log!(Info, "the client of etcd was loaded from {}", path.display());
    library.keep();
    Ok(api)
}

fn path() -> Result<PathBuf> {
    if let Some(path) = crate::base::process::library_variable(ENVIRONMENT) {
        return Ok(path);
    }
    let own = file_of((api as *const ()).cast());
    let folder = own.as_deref().and_then(Path::parent);
    folder.map(|folder| folder.join(FILE_NAME)).ok_or_else(|| {
        error!(
            Unsupported,
            "the folder of libkvmem.so is not known; set {ENVIRONMENT} to the path of {FILE_NAME}"
        )
    })
}
