// SPDX-License-Identifier: Apache-2.0
//! Reads fields from CBOR. Only what is generic depends on the type of a field; items are read by functions that exist once.
//! The deserializer of ciborium is generic in all of it, which is inlined for each field of each wire form: 5% of the library.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{self, DeserializeOwned, DeserializeSeed, Visitor};

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

type Result<T> = std::result::Result<T, Damage>;

/// The fields in some bytes, which contain nothing else.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut items = Items { left: bytes };
    let fields = T::deserialize(&mut items)?;
    items.ensure_end()?;
    Ok(fields)
}

/// Items of CBOR, one after the other.
struct Items<'a> {
    left: &'a [u8],
}

/// The types of items.
mod major {
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
    #[cold]
    #[inline(never)]
    fn damage<T>(message: &'static str) -> Result<T> {
        Err(Damage(message.into()))
    }

    fn ensure_end(&self) -> Result<()> {
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
    fn unsigned(&mut self) -> Result<u64> {
        match self.head()? {
            Head { major: major::UNSIGNED, argument: Some(value) } => Ok(value),
            _ => Self::damage("a number is expected"),
        }
    }

    #[inline(never)]
    fn signed(&mut self) -> Result<i64> {
        let Head { major, argument } = self.head()?;
        match (major, argument.and_then(|value| i64::try_from(value).ok())) {
            (major::UNSIGNED, Some(value)) => Ok(value),
            (major::NEGATIVE, Some(value)) => Ok(-1 - value),
            _ => Self::damage("a signed number is expected"),
        }
    }

    #[inline(never)]
    fn boolean(&mut self) -> Result<bool> {
        match self.head()? {
            Head { major: major::SIMPLE, argument: Some(simple::FALSE) } => Ok(false),
            Head { major: major::SIMPLE, argument: Some(simple::TRUE) } => Ok(true),
            _ => Self::damage("true or false is expected"),
        }
    }

    /// Whether the next item is null, which is then taken.
    #[inline(never)]
    fn is_null(&mut self) -> Result<bool> {
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
    fn string(&mut self, wanted: u8) -> Result<Cow<'a, [u8]>> {
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

    fn with_text<T>(&mut self, visit: impl FnOnce(&str) -> Result<T>) -> Result<T> {
        let text = self.string(major::TEXT)?;
        visit(valid_text(&text)?)
    }

    #[inline(never)]
    fn elements(&mut self, wanted: u8) -> Result<Elements<'_, 'a>> {
        match self.head()? {
            Head { major, argument } if major == wanted => Ok(Elements { items: self, left: argument }),
            _ if wanted == major::MAP => Self::damage("a map is expected"),
            _ => Self::damage("an array is expected"),
        }
    }

    /// Passes an item that no field has.
    #[inline(never)]
    fn skip(&mut self, levels: u32) -> Result<()> {
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
                    (0..each).try_for_each(|_| elements.items.skip(levels))?;
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
struct Elements<'i, 'a> {
    items: &'i mut Items<'a>,
    /// How many are left; `None` if they end with [`BREAK`].
    left: Option<u64>,
}

impl Elements<'_, '_> {
    #[inline(never)]
    fn has_next(&mut self) -> Result<bool> {
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
    fn ensure_end(&mut self) -> Result<()> {
        if self.has_next()? { Items::damage("an array has too many elements") } else { Ok(()) }
    }

    /// No more than there can be, whatever the length says.
    fn hint(&self) -> Option<usize> {
        self.left.map(|left| usize::try_from(left).unwrap_or(usize::MAX).min(self.items.left.len()))
    }
}

impl<'de> de::SeqAccess<'de> for &mut Elements<'_, '_> {
    type Error = Damage;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.has_next()? { seed.deserialize(&mut *self.items).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

impl<'de> de::MapAccess<'de> for &mut Elements<'_, '_> {
    type Error = Damage;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if self.has_next()? { seed.deserialize(&mut *self.items).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(&mut *self.items)
    }

    fn size_hint(&self) -> Option<usize> {
        self.hint()
    }
}

macro_rules! by {
    ($($method:ident: $item:ident to $visit:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            visitor.$visit(self.$item()?)
        })+
    };
}

macro_rules! like {
    ($($method:ident($($name:ident: $type:ty),*): $other:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value> {
            self.$other(visitor)
        })+
    };
}

macro_rules! no_field {
    ($($method:ident),+) => {
        $(fn $method<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value> {
            Items::damage("no field has this type")
        })+
    };
}

impl<'de> de::Deserializer<'de> for &mut Items<'_> {
    type Error = Damage;

    by! {
        deserialize_bool: boolean to visit_bool,
        deserialize_u64: unsigned to visit_u64,
        deserialize_i64: signed to visit_i64
    }

    like! {
        deserialize_u8(): deserialize_u64,
        deserialize_u16(): deserialize_u64,
        deserialize_u32(): deserialize_u64,
        deserialize_i8(): deserialize_i64,
        deserialize_i16(): deserialize_i64,
        deserialize_i32(): deserialize_i64,
        deserialize_string(): deserialize_str,
        deserialize_identifier(): deserialize_str,
        deserialize_byte_buf(): deserialize_bytes,
        deserialize_unit_struct(_name: &'static str): deserialize_unit,
        deserialize_tuple(_length: usize): deserialize_seq,
        deserialize_tuple_struct(_name: &'static str, _length: usize): deserialize_seq,
        deserialize_struct(_name: &'static str, _fields: &'static [&'static str]): deserialize_map
    }

    no_field! { deserialize_any, deserialize_f32, deserialize_f64, deserialize_char }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.with_text(|text| visitor.visit_str(text))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_bytes(&self.string(major::BYTES)?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_null()? { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.is_null()? { visitor.visit_unit() } else { Items::damage("null is expected") }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let mut elements = self.elements(major::ARRAY)?;
        let value = visitor.visit_seq(&mut elements)?;
        elements.ensure_end().map(|()| value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let mut entries = self.elements(major::MAP)?;
        visitor.visit_map(&mut entries)
    }

    /// The name of a variant, or a map from it to its fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let has_fields = self.is_variant_with_fields()?;
        visitor.visit_enum(Variant { items: self, has_fields })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip(MAX_LEVELS)?;
        visitor.visit_unit()
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// A variant, whose name is next.
struct Variant<'i, 'a> {
    items: &'i mut Items<'a>,
    has_fields: bool,
}

impl Items<'_> {
    /// Takes the start of the map, if there is one.
    #[inline(never)]
    fn is_variant_with_fields(&mut self) -> Result<bool> {
        match self.next_head()? {
            Head { major: major::TEXT, .. } => Ok(false),
            Head { major: major::MAP, argument: Some(1) } => self.head().map(|_| true),
            _ => Self::damage("the name of a variant is expected, or a map with one entry"),
        }
    }
}

impl Variant<'_, '_> {
    fn ensure_fields(&self) -> Result<()> {
        if self.has_fields { Ok(()) } else { Items::damage("a variant has no fields") }
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_, '_> {
    type Error = Damage;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name = seed.deserialize(&mut *self.items)?;
        Ok((name, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_, '_> {
    type Error = Damage;

    fn unit_variant(self) -> Result<()> {
        if self.has_fields && !self.items.is_null()? {
            return Items::damage("a variant has fields that it should not have");
        }
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        self.ensure_fields()?;
        seed.deserialize(self.items)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value> {
        self.ensure_fields()?;
        de::Deserializer::deserialize_seq(self.items, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.ensure_fields()?;
        de::Deserializer::deserialize_map(self.items, visitor)
    }
}

#[cfg(test)]
mod tests;
