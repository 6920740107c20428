// SPDX-License-Identifier: Apache-2.0
//! Items of CBOR, read by functions that exist once.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de;

/// How deep items that are ignored may contain each other.
const MAX_LEVELS: u32 = 64;

/// Why fields cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Damage(Cow<'static, str>);

impl de::Error for Damage {
    #[cold]
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string().into())
    }
}

pub type Result<T> = std::result::Result<T, Damage>;

/// Items of CBOR, one after the other.
pub struct Items<'a> {
    left: &'a [u8],
}

/// The types of items.
pub mod major {
    pub const UNSIGNED: u8 = 0;
    pub const NEGATIVE: u8 = 1;
    pub const BYTES: u8 = 2;
    pub const TEXT: u8 = 3;
    pub const ARRAY: u8 = 4;
    pub const MAP: u8 = 5;
    pub const TAG: u8 = 6;
    pub const SIMPLE: u8 = 7;
    /// Simple items of more than a byte.
    pub const FLOAT: u8 = 8;
}

/// The values of simple items.
mod simple {
    pub const FALSE: u64 = 20;
    pub const TRUE: u64 = 21;
    pub const NULL: u64 = 22;
    pub const UNDEFINED: u64 = 23;
}

/// Ends items without a length.
const BREAK: u8 = 0xff;

/// How an item starts.
struct Head {
    major: u8,
    /// A value or a length; `None` if what follows ends with [`BREAK`].
    argument: Option<u64>,
}

impl<'a> Items<'a> {
    /// All items in some bytes.
    pub fn new(left: &'a [u8]) -> Self {
        Self { left }
    }

    #[cold]
    #[inline(never)]
    pub fn damage<T>(message: &'static str) -> Result<T> {
        Err(Damage(message.into()))
    }

    pub fn ensure_end(&self) -> Result<()> {
        match self.left.len() {
            0 => Ok(()),
            left => Err(de::Error::custom(format_args!("{left} bytes follow them"))),
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let parts = usize::try_from(length).ok().and_then(|length| self.left.split_at_checked(length));
        let Some((taken, left)) = parts else { return Self::damage("they are cut off") };
        self.left = left;
        Ok(taken)
    }

    /// The start of the next item. Tags are ignored.
    #[inline(never)]
    fn head(&mut self) -> Result<Head> {
        loop {
            let first = self.take(1)?[0];
            let (major, short) = (first >> 5, first & 0x1f);
            let argument = match short {
                0..=23 => Some(u64::from(short)),
                24..=27 => {
                    let bytes = self.take(1 << (short - 24))?;
                    Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
                }
                31 if matches!(major, major::BYTES..=major::MAP) => None,
                _ => return Self::damage("an item has no valid start"),
            };
            match (major, short) {
                (major::TAG, _) => {}
                (major::SIMPLE, 25..) => return Ok(Head { major: major::FLOAT, argument }),
                _ => return Ok(Head { major, argument }),
            }
        }
    }

    /// The start of the next item, which stays the next one.
    #[inline(never)]
    fn next_head(&self) -> Result<Head> {
        Self { left: self.left }.head()
    }

    fn ends_here(&mut self) -> bool {
        let rest = self.left.strip_prefix(&[BREAK]);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    #[inline(never)]
    pub fn unsigned(&mut self) -> Result<u64> {
        match self.head()? {
            Head { major: major::UNSIGNED, argument: Some(value) } => Ok(value),
            _ => Self::damage("a number is expected"),
        }
    }

    #[inline(never)]
    pub fn signed(&mut self) -> Result<i64> {
        let Head { major, argument } = self.head()?;
        match (major, argument.and_then(|value| i64::try_from(value).ok())) {
            (major::UNSIGNED, Some(value)) => Ok(value),
            (major::NEGATIVE, Some(value)) => Ok(-1 - value),
            _ => Self::damage("a signed number is expected"),
        }
    }

    #[inline(never)]
    pub fn boolean(&mut self) -> Result<bool> {
        match self.head()? {
            Head { major: major::SIMPLE, argument: Some(simple::FALSE) } => Ok(false),
            Head { major: major::SIMPLE, argument: Some(simple::TRUE) } => Ok(true),
            _ => Self::damage("true or false is expected"),
        }
    }

    /// Whether the next item is null, which is then taken.
    #[inline(never)]
    pub fn is_null(&mut self) -> Result<bool> {
        let is_null = matches!(
            self.next_head()?,
            Head { major: major::SIMPLE, argument: Some(simple::NULL | simple::UNDEFINED) }
        );
        if is_null {
            self.head()?;
        }
        Ok(is_null)
    }

    /// Bytes or text, which may consist of several.
    #[inline(never)]
    pub fn string(&mut self, wanted: u8) -> Result<Cow<'a, [u8]>> {
        match self.head()? {
            Head { major, argument: Some(length) } if major == wanted => self.take(length).map(Cow::Borrowed),
            Head { major, argument: None } if major == wanted => {
                let mut all = Vec::new();
                while !self.ends_here() {
                    match self.head()? {
                        Head { major, argument: Some(length) } if major == wanted => {
                            all.extend_from_slice(self.take(length)?);
                        }
                        _ => return Self::damage("a part of a string is no string"),
                    }
                }
                Ok(all.into())
            }
            _ if wanted == major::TEXT => Self::damage("text is expected"),
            _ => Self::damage("bytes are expected"),
        }
    }

    pub fn with_text<T>(&mut self, visit: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let text = self.string(major::TEXT)?;
        visit(valid_text(&text)?)
    }

    #[inline(never)]
    pub fn elements(&mut self, wanted: u8) -> Result<Elements<'_, 'a>> {
        match self.head()? {
            Head { major, argument } if major == wanted => Ok(Elements { items: self, left: argument }),
            _ if wanted == major::MAP => Self::damage("a map is expected"),
            _ => Self::damage("an array is expected"),
        }
    }

    /// Passes an item that no field has.
    pub fn skip(&mut self) -> Result<()> {
        self.skip_within(MAX_LEVELS)
    }

    #[inline(never)]
    fn skip_within(&mut self, levels: u32) -> Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return Self::damage("items contain each other too often");
        };
        let Head { major, .. } = self.next_head()?;
        match major {
            major::BYTES | major::TEXT => self.string(major).map(drop),
            major::ARRAY | major::MAP => {
                let each = if major == major::MAP { 2 } else { 1 };
                let mut elements = self.elements(major)?;
                while elements.has_next()? {
                    (0..each).try_for_each(|_| elements.items.skip_within(levels))?;
                }
                Ok(())
            }
            _ => self.head().map(drop),
        }
    }
}

#[inline(never)]
fn valid_text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).or_else(|_| Items::damage("a text is not UTF-8"))
}

/// The elements of an array, or the entries of a map.
pub struct Elements<'i, 'a> {
    pub items: &'i mut Items<'a>,
    /// How many are left; `None` if they end with [`BREAK`].
    left: Option<u64>,
}

impl Elements<'_, '_> {
    #[inline(never)]
    pub fn has_next(&mut self) -> Result<bool> {
        match self.left {
            Some(0) => return Ok(false),
            Some(left) => self.left = Some(left - 1),
            None if self.items.ends_here() => {
                self.left = Some(0);
                return Ok(false);
            }
            None => {}
        }
        Ok(true)
    }

    #[inline(never)]
    pub fn ensure_end(&mut self) -> Result<()> {
        if self.has_next()? { Items::damage("an array has too many elements") } else { Ok(()) }
    }

    /// No more than there can be, whatever the length says.
    pub fn hint(&self) -> Option<usize> {
        self.left.map(|left| usize::try_from(left).unwrap_or(usize::MAX).min(self.items.left.len()))
    }
}

impl Items<'_> {
    /// Takes the start of the map, if there is one.
    #[inline(never)]
    pub fn is_variant_with_fields(&mut self) -> Result<bool> {
        match self.next_head()? {
            Head { major: major::TEXT, .. } => Ok(false),
            Head { major: major::MAP, argument: Some(1) } => self.head().map(|_| true),
            _ => Self::damage("the name of a variant is expected, or a map with one entry"),
        }
    }
}
