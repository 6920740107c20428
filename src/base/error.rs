// SPDX-License-Identifier: Apache-2.0
//! The error type of the library: a status for programs, a message for people, and the native cause.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::base::advice;
use crate::base::one_line::one_line;

/// The kind of failure. The discriminants are the C ABI's `KVMEM_STATUS_*` values and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// An argument is invalid in itself, independent of the state of the library.
    InvalidArgument = -1,
    /// Memory, disk space or another resource is exhausted.
    OutOfMemory = -2,
    /// An index or a size exceeds the object.
    OutOfRange = -3,
    /// The object does not exist.
    NotFound = -4,
    /// The object to create already exists.
    AlreadyExists = -5,
    /// The call does not fit the state of the object.
    InvalidState = -6,
    /// Something still uses the object.
    Busy = -7,
    /// The timeout passed.
    TimedOut = -8,
    /// The work was cancelled.
    Cancelled = -9,
    /// The operation is not supported, on this machine or at all.
    Unsupported = -10,
    /// The system or a peer denied access.
    PermissionDenied = -11,
    /// No usable CUDA driver.
    UnavailableCuda = -12,
    /// No usable NIXL library.
    UnavailableNixl = -13,
    /// The CUDA driver reported an error.
    Cuda = -14,
    /// NIXL reported an error.
    Nixl = -15,
    /// The system reported an error.
    Io = -16,
    /// The peer process has ended.
    PeerLost = -17,
    /// The handle refers to an earlier state of the object.
    Stale = -18,
    /// Bytes from outside are damaged or hostile.
    Corrupt = -19,
    /// Bytes from outside have a version that this library does not read.
    VersionMismatch = -20,
    /// A bug in this library; the object may be unusable.
    Panic = -21,
}

impl Status {
    /// All of them in the order of their values, with their names in the C ABI and their meanings.
    pub const ALL: [(Self, &CStr, &CStr); 21] = [
        (Self::InvalidArgument, c"KVMEM_STATUS_INVALID_ARGUMENT", c"An argument is invalid."),
        (
            Self::OutOfMemory,
            c"KVMEM_STATUS_OUT_OF_MEMORY",
            c"Memory, disk space or another resource is exhausted.",
        ),
        (Self::OutOfRange, c"KVMEM_STATUS_OUT_OF_RANGE", c"An index or a size is out of range."),
        (Self::NotFound, c"KVMEM_STATUS_NOT_FOUND", c"The named object does not exist."),
        (Self::AlreadyExists, c"KVMEM_STATUS_ALREADY_EXISTS", c"The object to create already exists."),
        (
            Self::InvalidState,
            c"KVMEM_STATUS_INVALID_STATE",
            c"The state of the object does not allow the call.",
        ),
        (Self::Busy, c"KVMEM_STATUS_BUSY", c"The object is in use."),
        (Self::TimedOut, c"KVMEM_STATUS_TIMED_OUT", c"The timeout expired."),
        (Self::Cancelled, c"KVMEM_STATUS_CANCELLED", c"The work was cancelled."),
        (Self::Unsupported, c"KVMEM_STATUS_UNSUPPORTED", c"The operation is not supported."),
        (Self::PermissionDenied, c"KVMEM_STATUS_PERMISSION_DENIED", c"The system or a peer denied access."),
        (Self::UnavailableCuda, c"KVMEM_STATUS_UNAVAILABLE_CUDA", c"There is no usable CUDA driver."),
        (Self::UnavailableNixl, c"KVMEM_STATUS_UNAVAILABLE_NIXL", c"There is no usable NIXL library."),
        (Self::Cuda, c"KVMEM_STATUS_CUDA", c"The CUDA driver reported an error."),
        (Self::Nixl, c"KVMEM_STATUS_NIXL", c"NIXL reported an error."),
        (Self::Io, c"KVMEM_STATUS_IO", c"The operating system reported an error."),
        (
            Self::PeerLost,
            c"KVMEM_STATUS_PEER_LOST",
            c"The peer process has ended, or the connection to it has failed.",
        ),
        (Self::Stale, c"KVMEM_STATUS_STALE", c"The object that the handle refers to has changed."),
        (Self::Corrupt, c"KVMEM_STATUS_CORRUPT", c"Received or stored bytes are damaged."),
        (
            Self::VersionMismatch,
            c"KVMEM_STATUS_VERSION_MISMATCH",
            c"Received or stored bytes have an unsupported version.",
        ),
        (Self::Panic, c"KVMEM_STATUS_PANIC", c"A bug in kvmem."),
    ];

    fn entry(self) -> (Self, &'static CStr, &'static CStr) {
        Self::ALL[(Self::InvalidArgument as i32 - self as i32) as usize]
    }

    /// Its name in the C ABI.
    pub fn name(self) -> &'static CStr {
        self.entry().1
    }

    /// Its meaning in one sentence.
    pub fn meaning(self) -> &'static CStr {
        self.entry().2
    }

    /// The status of a value that another process sent.
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().map(|(status, ..)| status).find(|status| *status as i32 == code)
    }
}

/// The error of the system, NIXL or CUDA that caused the failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An `errno` value.
    Errno(i32),
    /// A status of the C API of NIXL.
    Nixl(i32),
    /// A `CUresult`, and the driver's name for it.
    Cuda(i32, String),
}

/// A failure: status, message and native cause. The message is one line, whatever names it has. The value is one word, so that a result
/// that is passed on is small, in memory and in code.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Error(Box<Failure>);

#[derive(Clone, Debug)]
struct Failure {
    status: Status,
    message: Cow<'static, str>,
    cause: Option<Cause>,
    is_elapsed: bool,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without a native cause.
    #[cold]
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Self::from_parts(status, message.into(), None)
    }

    /// The end of a wait whose timeout has elapsed. Nothing has failed: what is waited for may still come.
    #[cold]
    pub fn elapsed(message: impl Into<Cow<'static, str>>) -> Self {
        let mut error = Self::new(Status::TimedOut, message);
        error.0.is_elapsed = true;
        error
    }

    /// The same with a formatted message. Formats it here, so that each place that can fail contains little code for it.
    #[cold]
    #[inline(never)]
    pub fn formatted(status: Status, message: std::fmt::Arguments<'_>) -> Self {
        let text = message.as_str().map_or_else(|| message.to_string().into(), Cow::Borrowed);
        Self::from_parts(status, text, None)
    }

    #[cold]
    #[inline(never)]
    fn from_parts(status: Status, message: Cow<'static, str>, cause: Option<Cause>) -> Self {
        let message = match message {
            Cow::Owned(text) => one_line(text).into(),
            own => own,
        };
        Self(Box::new(Failure { status, message, cause, is_elapsed: false }))
    }

    /// A failed system call. The message consists of `action`, the text of the errno, and advice if there is any.
    pub fn errno(action: impl std::fmt::Display, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let status = match errno {
            Errno::NOMEM | Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::MFILE | Errno::NFILE => {
                Status::OutOfMemory
            }
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Status::PermissionDenied,
            Errno::NOENT => Status::NotFound,
            Errno::EXIST => Status::AlreadyExists,
            _ => Status::Io,
        };
        let code = errno.raw_os_error();
        let message = format!("{action}: {}", errno_text(code));
        let error = Self::from_parts(status, message.into(), Some(Cause::Errno(code)));
        error.with_advice(advice::for_errno(errno))
    }

    /// A failed call of std. Without an errno, std had no memory, or refused what it read.
    pub fn io(action: impl std::fmt::Display, error: &std::io::Error) -> Self {
        use rustix::io::Errno;
        let is_memory = error.kind() == std::io::ErrorKind::OutOfMemory;
        let other = if is_memory { Errno::NOMEM } else { Errno::IO };
        Self::errno(action, Errno::from_io_error(error).unwrap_or(other))
    }

    /// The last `errno` of this thread, after a failed C library call.
    pub fn last_errno(action: impl std::fmt::Display) -> Self {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::errno(action, rustix::io::Errno::from_raw_os_error(code))
    }

    /// Replaces the status, if the caller knows a more specific one.
    pub fn with_status(mut self, status: Status) -> Self {
        self.0.status = status;
        self.0.is_elapsed = false;
        self
    }

    /// The same error with its native cause.
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The same error with `doing` before its message.
    pub fn context(mut self, doing: impl std::fmt::Display) -> Self {
        self.0.message = one_line(format!("{doing}: {}", self.0.message)).into();
        self
    }

    /// The same error with `later` after its message.
    pub fn followed_by(mut self, later: impl std::fmt::Display) -> Self {
        self.0.message = one_line(format!("{}; {later}", self.0.message)).into();
        self
    }

    /// The same error with advice after its message, if there is any.
    pub fn with_advice(self, advice: Option<String>) -> Self {
        match advice {
            Some(advice) => self.followed_by(advice),
            None => self,
        }
    }

    pub fn status(&self) -> Status {
        self.0.status
    }

    /// Whether it only says that the timeout of a wait has elapsed.
    pub fn is_elapsed(&self) -> bool {
        self.0.is_elapsed
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The native cause, if there is one.
    pub fn cause(&self) -> Option<&Cause> {
        self.0.cause.as_ref()
    }
}

/// An error with a formatted message.
macro_rules! error {
    ($status:ident, $($message:tt)+) => {
        $crate::base::error::Error::formatted($crate::base::error::Status::$status, format_args!($($message)+))
    };
}
pub(crate) use error;

/// Returns an error with a formatted message.
macro_rules! fail {
    ($status:ident, $($message:tt)+) => {
        return Err($crate::base::error::error!($status, $($message)+))
    };
}
pub(crate) use fail;

/// Shorthand for [`fail!`] unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $status:ident, $($message:tt)+) => {
        if !$condition {
            $crate::base::error::fail!($status, $($message)+);
        }
    };
}
pub(crate) use ensure;

fn errno_text(code: i32) -> String {
    let text = std::io::Error::from_raw_os_error(code).to_string();
    let name = errno_name(code);
    match text.split(" (os error").next() {
        Some(text) => format!("{text} ({name})"),
        None => name.to_string(),
    }
}

/// The symbolic name of an `errno` value, or `"unknown errno"` for a number that Linux does not define.
pub fn errno_name(code: i32) -> &'static str {
    macro_rules! names {
        ($($name:ident)+) => {
            match code {
                $(libc::$name => stringify!($name),)+
                _ => "unknown errno",
            }
        };
    }
    names!(EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
        EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM
        ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG
        EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET
        ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG
        ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE
        EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
        EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN
        ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM
        ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED
        EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON)
}

#[cfg(test)]
impl Error {
    /// Fails a test unless the error has this status, and this text in its message.
    #[track_caller]
    pub fn assert_is(&self, status: Status, text: &str) {
        assert_eq!(self.status(), status, "{self}");
        assert!(self.message().contains(text), "{self}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_the_cause_and_is_named() {
        let error = Error::errno("allocate 10 bytes in /x", rustix::io::Errno::NOSPC);
        assert_eq!(error.status(), Status::OutOfMemory);
        assert_eq!(error.cause(), Some(&Cause::Errno(libc::ENOSPC)));
        assert_eq!(error.message(), "allocate 10 bytes in /x: No space left on device (ENOSPC)");
    }

    #[test]
    fn every_errno_of_linux_has_its_name() {
        let named =
            [(libc::ENETUNREACH, "ENETUNREACH"), (libc::EHWPOISON, "EHWPOISON"), (libc::EDOM, "EDOM")];
        named.into_iter().for_each(|(code, name)| assert_eq!(errno_name(code), name));
        // Linux leaves these two numbers out.
        let defined = (1..=libc::EHWPOISON).filter(|code| ![41, 58].contains(code));
        let unnamed: Vec<_> = defined.filter(|code| !errno_name(*code).starts_with('E')).collect();
        assert_eq!(unnamed, [] as [i32; 0]);
        assert_eq!(errno_name(libc::EHWPOISON + 1), "unknown errno");
    }

    #[test]
    fn every_status_is_found_by_its_value() {
        for (position, (status, ..)) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as i32, -1 - position as i32);
            assert_eq!(Status::from_code(status as i32), Some(status));
        }
        assert_eq!([0, 1, -22, i32::MIN].map(Status::from_code), [None; 4]);
    }

    #[test]
    fn a_message_is_one_line_whatever_names_it_has() {
        let name = "a\nERROR\u{2028}b";
        let errors = [
            error!(NotFound, "{name}"),
            Error::new(Status::NotFound, name.to_string()),
            Error::errno(name, rustix::io::Errno::NOENT),
            Error::new(Status::NotFound, "").context(name),
            Error::new(Status::NotFound, "").followed_by(name),
        ];
        errors.iter().for_each(|error| assert!(error.message().contains(r"a\nERROR\u{2028}b"), "{error}"));
    }

    #[test]
    fn context_is_prepended_and_keeps_status_and_cause() {
        let error = Error::new(Status::Busy, "in use").with_cause(Cause::Nixl(-3)).context("deregister");
        assert_eq!(error.to_string(), "deregister: in use");
        assert_eq!((error.status(), error.cause()), (Status::Busy, Some(&Cause::Nixl(-3))));
    }
}
