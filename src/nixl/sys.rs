// SPDX-License-Identifier: Apache-2.0
//! The functions of NIXL's C API that kvmem calls, resolved in the loaded library.
//!
//! nixl-sys supplies the values of NIXL's constants, and its header the signatures: a test compares each with it.
//! Its stubs are not called, because a stub aborts the process if the library or one symbol is missing. Such a
//! library fails to load, and a call without a library fails with a status.
//!
//! Its other code must not be linked either, because the object of its stubs needs libstdc++. The compiler shares instances of
//! generic types between crates: `HashSet<String>` in kvmem would be that of nixl-sys. symbols.dynamic fails then.
#![allow(unsafe_code)]
#![allow(non_camel_case_types)]
// The functions have the parameters of NIXL's.
#![allow(clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

use nixl_sys::{MemType, XferOp};
use once_cell::sync::OnceCell;

macro_rules! handles {
    ($($name:ident)+) => {
        $(pub type $name = *mut c_void;)+
    };
}
handles!(nixl_capi_agent_t nixl_capi_params_t nixl_capi_mem_list_t nixl_capi_string_list_t nixl_capi_backend_t
    nixl_capi_opt_args_t nixl_capi_param_iter_t nixl_capi_xfer_dlist_t nixl_capi_xfer_dlist_handle_t
    nixl_capi_reg_dlist_t nixl_capi_xfer_req_t nixl_capi_notif_map_t nixl_capi_query_resp_list_t
    nixl_capi_remote_dlist_t nixl_capi_mem_view_t);

pub type nixl_capi_status_t = c_int;
pub type nixl_capi_mem_type_t = c_uint;
pub type nixl_capi_xfer_op_t = c_uint;
pub type nixl_capi_thread_sync_t = c_uint;
pub type nixl_capi_cost_t = c_uint;
pub type nixl_capi_xfer_telemetry_t = *mut nixl_capi_xfer_telemetry_s;

pub use nixl_sys::{NIXL_CAPI_ERROR_NOT_FOUND, NIXL_CAPI_IN_PROG, NIXL_CAPI_SUCCESS};
/// nixl-sys does not export these.
/// Also for failures that NIXL itself distinguishes, among them a lost connection.
pub const NIXL_CAPI_ERROR_BACKEND: nixl_capi_status_t = -2;
const NIXL_CAPI_ERROR_INVALID_STATE: nixl_capi_status_t = -3;
pub const NIXL_CAPI_ERROR_NO_TELEMETRY: nixl_capi_status_t = -5;

pub const NIXL_CAPI_MEM_DRAM: nixl_capi_mem_type_t = MemType::Dram as nixl_capi_mem_type_t;
pub const NIXL_CAPI_MEM_VRAM: nixl_capi_mem_type_t = MemType::Vram as nixl_capi_mem_type_t;
pub const NIXL_CAPI_MEM_BLOCK: nixl_capi_mem_type_t = MemType::Block as nixl_capi_mem_type_t;
pub const NIXL_CAPI_MEM_OBJECT: nixl_capi_mem_type_t = MemType::Object as nixl_capi_mem_type_t;
pub const NIXL_CAPI_MEM_FILE: nixl_capi_mem_type_t = MemType::File as nixl_capi_mem_type_t;

pub const NIXL_CAPI_XFER_OP_READ: nixl_capi_xfer_op_t = XferOp::Read as nixl_capi_xfer_op_t;
pub const NIXL_CAPI_XFER_OP_WRITE: nixl_capi_xfer_op_t = XferOp::Write as nixl_capi_xfer_op_t;

#[repr(C)]
pub struct nixl_capi_agent_config_t {
    pub enable_prog_thread: bool,
    pub enable_listen_thread: bool,
    pub listen_port: c_int,
    pub thread_sync: nixl_capi_thread_sync_t,
    pub num_workers: c_uint,
    pub pthr_delay_us: u64,
    pub lthr_delay_us: u64,
    pub capture_telemetry: bool,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nixl_capi_xfer_telemetry_s {
    pub start_time_us: u64,
    pub post_duration_us: u64,
    pub xfer_duration_us: u64,
    pub total_bytes: u64,
    pub desc_count: u64,
}

/// The name of a status, for error causes.
pub fn status_name(status: nixl_capi_status_t) -> &'static str {
    match status {
        0 => "NIXL_CAPI_SUCCESS",
        1 => "NIXL_CAPI_IN_PROG",
        -1 => "NIXL_CAPI_ERROR_INVALID_PARAM",
        -2 => "NIXL_CAPI_ERROR_BACKEND",
        -3 => "NIXL_CAPI_ERROR_INVALID_STATE",
        -4 => "NIXL_CAPI_ERROR_EXCEPTION",
        -5 => "NIXL_CAPI_ERROR_NO_TELEMETRY",
        -6 => "NIXL_CAPI_ERROR_NOT_FOUND",
        _ => "NIXL_CAPI_ERROR",
    }
}

/// Declares a struct of pointers to functions that return a status, how it is filled, and a function of the same name for each of
/// them. Only newer libraries have the optional ones: a call returns the name of its function if the library lacks it.
macro_rules! functions {
    (
        $(fn $name:ident($($argument:ident: $type:ty),*);)+
        optional:
        $(fn $newer:ident($($its:ident: $its_type:ty),*);)+
    ) => {
        /// The addresses of the functions in one library.
        pub struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> nixl_capi_status_t,)+
            $($newer: Option<unsafe extern "C" fn($($its_type),*) -> nixl_capi_status_t>,)+
        }

        impl Functions {
            /// Resolves the functions. Fails with the name of the first that the library must have, and has not.
            ///
            /// # Safety
            /// The functions that `address_of` returns must have NIXL's signatures, and stay loaded.
            pub unsafe fn resolve(
                address_of: impl Fn(&CStr) -> Option<NonNull<c_void>>,
            ) -> Result<Self, &'static str> {
                let find = |name: &str| CStr::from_bytes_with_nul(name.as_bytes()).ok().and_then(&address_of);
                // SAFETY: the caller's promise; a function pointer has the size of an address.
                unsafe {
                    Ok(Self {
                        $($name: std::mem::transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($type),*) -> nixl_capi_status_t,
                        >(find(concat!(stringify!($name), "\0")).ok_or(stringify!($name))?),)+
                        $($newer: find(concat!(stringify!($newer), "\0")).map(|address| {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($its_type),*) -> nixl_capi_status_t,
                            >(address)
                        }),)+
                    })
                }
            }
        }

        $(
            /// Calls NIXL's function of this name.
            ///
            /// # Safety
            /// As for NIXL's function.
            pub unsafe fn $name($($argument: $type),*) -> nixl_capi_status_t {
                let Some(functions) = FUNCTIONS.get() else { return NIXL_CAPI_ERROR_INVALID_STATE };
                // SAFETY: the caller's promise.
                unsafe { (functions.$name)($($argument),*) }
            }
        )+

        $(
            /// Calls NIXL's function of this name, if the library has it.
            ///
            /// # Safety
            /// As for NIXL's function.
            pub unsafe fn $newer($($its: $its_type),*) -> Result<nixl_capi_status_t, &'static str> {
                let function = FUNCTIONS.get().and_then(|functions| functions.$newer).ok_or(stringify!($newer))?;
                // SAFETY: the caller's promise.
                Ok(unsafe { function($($its),*) })
            }
        )+

        #[cfg(test)]
        pub const SIGNATURES: &[(&str, &[&str])] = &[
            $((stringify!($name), &[$(stringify!($type)),*]),)+
            $((stringify!($newer), &[$(stringify!($its_type)),*]),)+
        ];
    };
}

static FUNCTIONS: OnceCell<Functions> = OnceCell::new();

/// Makes all later calls use these functions. The first library that is installed is used until the process ends.
pub fn install(functions: Functions) {
    // Concurrent loads resolve the same library: the loader allows one at a time.
    let _ = FUNCTIONS.set(functions);
}

functions! {
    fn nixl_capi_create_configured_agent(name: *const c_char, config: *const nixl_capi_agent_config_t,
        agent: *mut nixl_capi_agent_t);
    fn nixl_capi_destroy_agent(agent: nixl_capi_agent_t);

    fn nixl_capi_get_local_md(agent: nixl_capi_agent_t, data: *mut *mut c_void, len: *mut usize);
    fn nixl_capi_get_local_partial_md(agent: nixl_capi_agent_t, descs: nixl_capi_reg_dlist_t, data: *mut *mut c_void,
        len: *mut usize, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_send_local_partial_md(agent: nixl_capi_agent_t, descs: nixl_capi_reg_dlist_t,
        opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_invalidate_local_md(agent: nixl_capi_agent_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_agent_make_connection(agent: nixl_capi_agent_t, remote_agent: *const c_char,
        opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_load_remote_md(agent: nixl_capi_agent_t, data: *const c_void, len: usize,
        agent_name: *mut *mut c_char);
    fn nixl_capi_invalidate_remote_md(agent: nixl_capi_agent_t, remote_agent: *const c_char);
    fn nixl_capi_check_remote_md(agent: nixl_capi_agent_t, remote_name: *const c_char, descs: nixl_capi_xfer_dlist_t);
    fn nixl_capi_send_local_md(agent: nixl_capi_agent_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_fetch_remote_md(agent: nixl_capi_agent_t, remote_name: *const c_char, opt_args: nixl_capi_opt_args_t);

    fn nixl_capi_get_available_plugins(agent: nixl_capi_agent_t, plugins: *mut nixl_capi_string_list_t);
    fn nixl_capi_destroy_string_list(list: nixl_capi_string_list_t);
    fn nixl_capi_string_list_size(list: nixl_capi_string_list_t, size: *mut usize);
    fn nixl_capi_string_list_get(list: nixl_capi_string_list_t, index: usize, str: *mut *const c_char);
    fn nixl_capi_get_plugin_params(agent: nixl_capi_agent_t, plugin_name: *const c_char,
        mems: *mut nixl_capi_mem_list_t, params: *mut nixl_capi_params_t);
    fn nixl_capi_mem_list_size(list: nixl_capi_mem_list_t, size: *mut usize);
    fn nixl_capi_mem_list_get(list: nixl_capi_mem_list_t, index: usize, mem_type: *mut nixl_capi_mem_type_t);
    fn nixl_capi_destroy_mem_list(list: nixl_capi_mem_list_t);
    fn nixl_capi_destroy_params(params: nixl_capi_params_t);
    fn nixl_capi_create_backend(agent: nixl_capi_agent_t, plugin_name: *const c_char, params: nixl_capi_params_t,
        backend: *mut nixl_capi_backend_t);
    fn nixl_capi_get_backend_params(agent: nixl_capi_agent_t, backend: nixl_capi_backend_t,
        mems: *mut nixl_capi_mem_list_t, params: *mut nixl_capi_params_t);
    fn nixl_capi_destroy_backend(backend: nixl_capi_backend_t);

    fn nixl_capi_create_opt_args(args: *mut nixl_capi_opt_args_t);
    fn nixl_capi_destroy_opt_args(args: nixl_capi_opt_args_t);
    fn nixl_capi_opt_args_add_backend(args: nixl_capi_opt_args_t, backend: nixl_capi_backend_t);
    fn nixl_capi_opt_args_set_notif_msg(args: nixl_capi_opt_args_t, data: *const c_void, len: usize);
    fn nixl_capi_opt_args_set_has_notif(args: nixl_capi_opt_args_t, has_notif: bool);
    fn nixl_capi_opt_args_set_skip_desc_merge(args: nixl_capi_opt_args_t, skip_merge: bool);
    fn nixl_capi_opt_args_set_ip_addr(args: nixl_capi_opt_args_t, ip_addr: *const c_char);
    fn nixl_capi_opt_args_set_port(args: nixl_capi_opt_args_t, port: u16);

    fn nixl_capi_create_params(params: *mut nixl_capi_params_t);
    fn nixl_capi_params_add(params: nixl_capi_params_t, key: *const c_char, value: *const c_char);
    fn nixl_capi_params_create_iterator(params: nixl_capi_params_t, iter: *mut nixl_capi_param_iter_t);
    fn nixl_capi_params_iterator_next(iter: nixl_capi_param_iter_t, key: *mut *const c_char, value: *mut *const c_char,
        has_next: *mut bool);
    fn nixl_capi_params_destroy_iterator(iter: nixl_capi_param_iter_t);

    fn nixl_capi_create_reg_dlist(mem_type: nixl_capi_mem_type_t, dlist: *mut nixl_capi_reg_dlist_t);
    fn nixl_capi_destroy_reg_dlist(dlist: nixl_capi_reg_dlist_t);
    fn nixl_capi_reg_dlist_add_desc(dlist: nixl_capi_reg_dlist_t, addr: usize, len: usize, dev_id: u64,
        metadata: *const c_void, metadata_len: usize);
    fn nixl_capi_register_mem(agent: nixl_capi_agent_t, dlist: nixl_capi_reg_dlist_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_deregister_mem(agent: nixl_capi_agent_t, dlist: nixl_capi_reg_dlist_t, opt_args: nixl_capi_opt_args_t);

    fn nixl_capi_create_xfer_dlist(mem_type: nixl_capi_mem_type_t, dlist: *mut nixl_capi_xfer_dlist_t);
    fn nixl_capi_destroy_xfer_dlist(dlist: nixl_capi_xfer_dlist_t);
    fn nixl_capi_xfer_dlist_add_desc(dlist: nixl_capi_xfer_dlist_t, addr: usize, len: usize, dev_id: u64);
    fn nixl_capi_prep_xfer_dlist(agent: nixl_capi_agent_t, agent_name: *const c_char, descs: nixl_capi_xfer_dlist_t,
        dlist_hndl: *mut nixl_capi_xfer_dlist_handle_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_release_xfer_dlist_handle(agent: nixl_capi_agent_t, dlist_handle: nixl_capi_xfer_dlist_handle_t);

    fn nixl_capi_make_xfer_req(agent: nixl_capi_agent_t, operation: nixl_capi_xfer_op_t,
        local_descs: nixl_capi_xfer_dlist_handle_t, local_indices: *const c_int, local_indices_count: usize,
        remote_descs: nixl_capi_xfer_dlist_handle_t, remote_indices: *const c_int, remote_indices_count: usize,
        req_hndl: *mut nixl_capi_xfer_req_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_create_xfer_req(agent: nixl_capi_agent_t, operation: nixl_capi_xfer_op_t,
        local_descs: nixl_capi_xfer_dlist_t, remote_descs: nixl_capi_xfer_dlist_t, remote_agent: *const c_char,
        req_hndl: *mut nixl_capi_xfer_req_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_post_xfer_req(agent: nixl_capi_agent_t, req_hndl: nixl_capi_xfer_req_t,
        opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_get_xfer_status(agent: nixl_capi_agent_t, req_hndl: nixl_capi_xfer_req_t);
    fn nixl_capi_estimate_xfer_cost(agent: nixl_capi_agent_t, req_hndl: nixl_capi_xfer_req_t,
        opt_args: nixl_capi_opt_args_t, duration_us: *mut i64, err_margin_us: *mut i64, method: *mut nixl_capi_cost_t);
    fn nixl_capi_query_xfer_backend(agent: nixl_capi_agent_t, req_hndl: nixl_capi_xfer_req_t,
        backend: *mut nixl_capi_backend_t);
    fn nixl_capi_get_xfer_telemetry(agent: nixl_capi_agent_t, req_hndl: nixl_capi_xfer_req_t,
        telemetry: nixl_capi_xfer_telemetry_t);
    fn nixl_capi_create_query_resp_list(list: *mut nixl_capi_query_resp_list_t);
    fn nixl_capi_destroy_query_resp_list(list: nixl_capi_query_resp_list_t);
    fn nixl_capi_query_resp_list_size(list: nixl_capi_query_resp_list_t, size: *mut usize);
    fn nixl_capi_query_resp_list_has_value(list: nixl_capi_query_resp_list_t, index: usize, has_value: *mut bool);
    fn nixl_capi_query_resp_list_get_params(list: nixl_capi_query_resp_list_t, index: usize,
        params: *mut nixl_capi_params_t);
    fn nixl_capi_query_mem(agent: nixl_capi_agent_t, descs: nixl_capi_reg_dlist_t, resp: nixl_capi_query_resp_list_t,
        opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_release_xfer_req(agent: nixl_capi_agent_t, req: nixl_capi_xfer_req_t);
    fn nixl_capi_destroy_xfer_req(req: nixl_capi_xfer_req_t);

    fn nixl_capi_gen_notif(agent: nixl_capi_agent_t, remote_agent: *const c_char, data: *const c_void, len: usize,
        opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_create_notif_map(notif_map: *mut nixl_capi_notif_map_t);
    fn nixl_capi_destroy_notif_map(notif_map: nixl_capi_notif_map_t);
    fn nixl_capi_get_notifs(agent: nixl_capi_agent_t, notif_map: nixl_capi_notif_map_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_notif_map_size(map: nixl_capi_notif_map_t, size: *mut usize);
    fn nixl_capi_notif_map_get_agent_at(map: nixl_capi_notif_map_t, index: usize, agent_name: *mut *const c_char);
    fn nixl_capi_notif_map_get_notifs_size(map: nixl_capi_notif_map_t, agent_name: *const c_char, size: *mut usize);
    fn nixl_capi_notif_map_get_notif(map: nixl_capi_notif_map_t, agent_name: *const c_char, index: usize,
        data: *mut *const c_void, len: *mut usize);
    optional:
    fn nixl_capi_opt_args_set_custom_param(args: nixl_capi_opt_args_t, data: *const c_void, len: usize);
    fn nixl_capi_create_remote_dlist(mem_type: nixl_capi_mem_type_t, dlist: *mut nixl_capi_remote_dlist_t);
    fn nixl_capi_destroy_remote_dlist(dlist: nixl_capi_remote_dlist_t);
    fn nixl_capi_remote_dlist_add_desc(dlist: nixl_capi_remote_dlist_t, addr: usize, len: usize, dev_id: u64,
        remote_agent: *const c_char);
    fn nixl_capi_prep_mem_view_local(agent: nixl_capi_agent_t, descs: nixl_capi_xfer_dlist_t,
        mvh: *mut nixl_capi_mem_view_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_prep_mem_view_remote(agent: nixl_capi_agent_t, descs: nixl_capi_remote_dlist_t,
        mvh: *mut nixl_capi_mem_view_t, opt_args: nixl_capi_opt_args_t);
    fn nixl_capi_release_mem_view(agent: nixl_capi_agent_t, mvh: nixl_capi_mem_view_t);
}

#[cfg(test)]
mod tests;
