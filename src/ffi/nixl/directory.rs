// SPDX-License-Identifier: Apache-2.0
//! Directories: agents are published and found by name.

use std::ffi::c_char;
use std::path::Path;

use crate::base::{Result, ensure, fail};
use crate::directory::{Directory, EtcdConfig, Location};
use crate::ffi::common::{
    Handle, call_new, check_reserved, destroy, items, kvmem_error, kvmem_status, opaque, options, read, text,
};

/// A directory, in which agents publish metadata and layouts, and peers find them by name: a folder of one
/// machine, or in etcd. An entry exists while its process lives, in etcd until its lease ends.
///
/// No call waits longer than 100 ms after its timeout; with a timeout of 0 it asks once, and waits up to
/// 100 ms for the response. With etcd none waits longer than 10 seconds, also with KVMEM_TIMEOUT_FOREVER,
/// except kvmem_directory_connect and kvmem_directory_take_events.
///
/// Calls fail with KVMEM_STATUS_TIMED_OUT if the directory does not respond, and with KVMEM_STATUS_IO or
/// KVMEM_STATUS_PERMISSION_DENIED if the folder or the servers cannot be accessed.
///
/// Any process that can write to the directory can write anything. An invalid entry is reported as
/// KVMEM_STATUS_CORRUPT with its name, and is not used. A directory does not prove which process published an
/// entry: its permissions determine which processes can write to it.
pub struct kvmem_directory {
    handle: Handle<Directory>,
}
opaque!(kvmem_directory, Directory, "directory");

/// Options of kvmem_directory_create.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kvmem_directory_options {
    /// sizeof(kvmem_directory_options)
    pub struct_size: usize,
    /// Path of a folder of this machine, which all processes use. A relative path begins in the present
    /// working directory, also after that has changed. If it does not exist, the first publication creates it
    /// with mode 0700, but not its parents. NULL for etcd.
    pub folder: *const c_char,
    /// URLs of the servers of etcd, such as "https://10.0.0.1:2379", with http or https. One is used at
    /// a time, and another one if it stops or does not respond. NULL for a folder.
    pub endpoints: *const *const c_char,
    /// Number of endpoints, at most 64; 0 for a folder.
    pub endpoint_count: usize,
    /// Prefix of all keys: directories with different ones are independent. NULL for "kvmem", or a folder.
    pub prefix: *const c_char,
    /// Seconds after the end of a process until etcd removes its entries, 2 to 3600; 0 for 10. For a folder
    /// 0, because the kernel reports the end of a process.
    pub lease_seconds: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Name of the user in etcd; NULL for none.
    pub user: *const c_char,
    /// Password, required with user. It is never in a message or the log.
    pub password: *const c_char,
    /// Path of a file with certificates of the servers' authorities, in PEM: for https, otherwise NULL.
    pub ca_file: *const c_char,
    /// Path of a file with this client's certificate, in PEM; NULL for none. It needs https and key_file.
    pub certificate_file: *const c_char,
    /// Path of a file with the key of that certificate, in PEM; NULL for none.
    pub key_file: *const c_char,
}
options!(kvmem_directory_options);

/// Creates a directory handle. Does not need NIXL. Opens the folder, or connects to etcd.
///
/// @return KVMEM_STATUS_NOT_FOUND: a parent of the folder, or a file of the options, does not exist
///         KVMEM_STATUS_PERMISSION_DENIED: access to the folder or a file, or etcd rejects the user, the
///           password or the prefix
///         KVMEM_STATUS_IO: the folder cannot be opened, or etcd not reached; the message has the reason
///         KVMEM_STATUS_TIMED_OUT: the file system has not responded for 5 seconds, or etcd for 20
///         KVMEM_STATUS_UNSUPPORTED: libkvmem_etcd.so is not installed beside libkvmem.so
///
/// Notes: the client of etcd is a separate library, which is loaded here. It runs one thread per directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_create(
    options: *const kvmem_directory_options,
    directory: *mut *mut kvmem_directory,
    error: *mut *mut kvmem_error,
) -> kvmem_status {
    call_new(error, (directory, "directory"), |_| {
        let options = read(options)?;
        Directory::open(&location(&options)?)
    })
}

/// # Safety
/// The strings must be NULL or NUL-terminated, and endpoints an array of endpoint_count.
unsafe fn location(options: &kvmem_directory_options) -> Result<Location> {
    check_reserved("kvmem_directory_options", options.reserved)?;
    let has_endpoints = !options.endpoints.is_null() || options.endpoint_count != 0;
    ensure!(
        options.folder.is_null() == has_endpoints,
        InvalidArgument,
        "kvmem_directory_options needs either folder or endpoints and endpoint_count, and has {}",
        if has_endpoints { "both" } else { "neither" }
    );
    // SAFETY: the caller's promise.
    if has_endpoints { unsafe { etcd(options) }.map(Location::Etcd) } else { unsafe { folder(options) } }
}

/// # Safety
/// As for [`location`].
unsafe fn folder(options: &kvmem_directory_options) -> Result<Location> {
    let of_etcd = [
        ("prefix", options.prefix),
        ("ca_file", options.ca_file),
        ("certificate_file", options.certificate_file),
        ("key_file", options.key_file),
        ("user", options.user),
        ("password", options.password),
    ];
    let set = of_etcd.into_iter().find(|(_, value)| !value.is_null()).map(|(name, _)| name);
    let set = set.or((options.lease_seconds != 0).then_some("lease_seconds"));
    ensure!(
        set.is_none(),
        InvalidArgument,
        "{} is an option of etcd, and folder is set",
        set.unwrap_or_default()
    );
    let folder = text::path(options.folder).unwrap_or("".as_ref());
    ensure!(!folder.as_os_str().is_empty(), InvalidArgument, "folder is empty");
    Ok(Location::Folder(folder.to_path_buf()))
}

/// # Safety
/// As for [`location`].
unsafe fn etcd(options: &kvmem_directory_options) -> Result<EtcdConfig> {
    let count = options.endpoint_count;
    ensure!(
        (1..=64).contains(&count),
        InvalidArgument,
        "endpoint_count is {count}; it must be 1 to 64, the number of endpoints"
    );
    // SAFETY: the caller's promise.
    unsafe {
        let endpoints = items(options.endpoints, count, ("endpoints", "endpoint_count"))?
            .iter()
            .enumerate()
            .map(|(index, endpoint)| {
                text::required(*endpoint, &format!("endpoints[{index}]")).map(str::to_string)
            })
            .collect::<Result<Vec<_>>>()?;
        let optional = |value: *const c_char, name| {
            if value.is_null() {
                Ok(None)
            } else {
                text::required(value, name).map(|text| Some(text.to_string()))
            }
        };
        let path = |value| text::path(value).map(Path::to_path_buf);
        let identity = match (path(options.certificate_file), path(options.key_file)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                fail!(InvalidArgument, "only one of certificate_file and key_file is set; set both, or none")
            }
        };
        let user = match (optional(options.user, "user")?, optional(options.password, "password")?) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            _ => fail!(InvalidArgument, "only one of user and password is set; set both, or none"),
        };
        Ok(EtcdConfig {
            endpoints,
            prefix: optional(options.prefix, "prefix")?.unwrap_or_default(),
            authority: path(options.ca_file),
            identity,
            user,
            lease_seconds: options.lease_seconds,
        })
    }
}

/// Destroys a directory handle. Withdraws the entries that were published with it, and waits at most two
/// seconds for that. Entries and events that were returned remain valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvmem_directory_destroy(directory: *mut kvmem_directory) {
    destroy(directory);
}
