// SPDX-License-Identifier: Apache-2.0
//! Which keys of a range are read next, page by page. Pure: libkvmem.so compiles its tests.

#![forbid(unsafe_code)]

/// The most keys of a page.
const PAGE: i64 = 512;

/// The page that is read next.
pub struct Paging {
    /// Bytes: a key of another program may be no text.
    from: Vec<u8>,
    most: i64,
    is_first: bool,
}

impl Paging {
    /// Begins at a key.
    pub fn new(from: Vec<u8>) -> Self {
        Self { from, most: PAGE, is_first: true }
    }

    /// The first key that may be in the page.
    pub fn from(&self) -> &[u8] {
        &self.from
    }

    /// The most keys of the page.
    pub fn most(&self) -> i64 {
        self.most
    }

    /// Whether no page was read before it.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// Makes pages smaller after one was too large. Returns whether that is possible.
    pub fn shrink(&mut self) -> bool {
        let is_possible = self.most > 1;
        self.most = (self.most / 8).max(1);
        is_possible
    }

    /// Goes on after a page that ends with this key. Returns whether another page follows: each begins behind the one before.
    pub fn advance(&mut self, last: Option<&[u8]>, has_more: bool) -> Result<bool, &'static str> {
        if !has_more {
            return Ok(false);
        }
        let last = last.ok_or("the server says that there are more keys, and has sent none")?;
        if last < self.from() {
            return Err("the server has sent keys that were not requested");
        }
        self.from = [last, b"\0"].concat();
        self.is_first = false;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that are read of a server with these.
    fn read(keys: &[&[u8]], largest_page: i64) -> Vec<Vec<u8>> {
        let (mut paging, mut found) = (Paging::new(b"a/".to_vec()), Vec::new());
        loop {
            if paging.most() > largest_page {
                assert!(paging.shrink());
                continue;
            }
            let mut left = keys.iter().copied().filter(|key| *key >= paging.from()).peekable();
            let page: Vec<_> = left.by_ref().take(paging.most() as usize).collect();
            found.extend(page.iter().map(|key| key.to_vec()));
            if !paging.advance(page.last().copied(), left.peek().is_some()).unwrap() {
                return found;
            }
            assert!(!paging.is_first());
        }
    }

    #[test]
    fn each_key_is_read_once_with_pages_of_any_size() {
        let numbered: Vec<_> = (0..1300).map(|number| format!("a/{number:05}").into_bytes()).collect();
        let mut keys: Vec<&[u8]> = numbered.iter().map(Vec::as_slice).collect();
        keys.extend([&b"a/\xFF"[..], b"a/\xFF\0", b"a/\xFF\xFF"]);
        for largest_page in [512, 64, 8, 1] {
            assert_eq!(read(&keys, largest_page), keys);
        }
        assert!(read(&[], 512).is_empty());
    }

    #[test]
    fn a_server_that_does_not_progress_is_an_error() {
        let mut paging = Paging::new(b"a/5".to_vec());
        assert!(paging.is_first() && paging.advance(None, true).is_err());
        assert!(paging.advance(Some(b"a/4"), true).is_err());
        assert_eq!(paging.advance(Some(b"a/5"), true), Ok(true));
        assert!(paging.advance(Some(b"a/5"), true).is_err(), "again");
        assert_eq!(paging.advance(None, false), Ok(false));
    }

    #[test]
    fn pages_of_one_key_do_not_shrink() {
        let mut paging = Paging::new(Vec::new());
        let steps = (0..10).take_while(|_| paging.shrink()).count();
        assert_eq!((steps, paging.most()), (3, 1));
    }
}
