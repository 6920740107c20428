// SPDX-License-Identifier: Apache-2.0
//! The encryption of a namespace. docs/store.md specifies it byte by byte.
//!
//! The cipher keys follow from the secret of the caller, a random salt, and all that the header says, so that a block is readable in its store
//! and namespace only. Nonces are 24 random bytes for each write of a slot: no crash, and no copy of the folder, repeats one.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use hkdf::hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::blocks::NewBlock;
use super::key::{Key, MAX};
use super::seal::{HASH, KEYS, NONCE, Seal, TAG};
use super::store_header::Header;
use crate::base::{Result, error, random};

/// Bytes of a secret.
pub const SECRET: usize = 32;
/// Bytes of what the tag of a block authenticates beside it.
const ASSOCIATED: usize = 20 + HASH + 2 + KEYS;

/// The key of a namespace, which its caller keeps.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET]>);

impl Secret {
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let secret = bytes.try_into().map_err(|_| {
            error!(
                InvalidArgument,
                "key_size is {}; give {SECRET} random bytes, or no key for a namespace that is not encrypted",
                bytes.len()
            )
        })?;
        Ok(Self(Zeroizing::new(secret)))
    }
}

/// What the file of namespaces has of a secret: enough to recognise it, and no help to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recognition {
    salt: [u8; 16],
    check: [u8; 16],
}

pub struct Cipher {
    namespace: u32,
    /// Encrypts blocks.
    blocks: XChaCha20Poly1305,
    /// Hashes keys of the caller.
    hash: Hmac<Sha256>,
    /// Encrypts keys of the caller.
    keys: Hkdf<Sha256>,
    associated: [u8; 20],
}

impl Cipher {
    /// For a new namespace.
    pub fn create(secret: &Secret, namespace: u32, header: &Header) -> Result<(Self, Recognition)> {
        let salt = random()?;
        let (cipher, check) = Self::derived(secret, salt, namespace, header)?;
        Ok((cipher, Recognition { salt, check }))
    }

    /// `None` if it is another secret.
    pub fn open(
        secret: &Secret,
        recognition: &Recognition,
        namespace: u32,
        header: &Header,
    ) -> Result<Option<Self>> {
        let (cipher, check) = Self::derived(secret, recognition.salt, namespace, header)?;
        Ok((check == recognition.check).then_some(cipher))
    }

    fn derived(secret: &Secret, salt: [u8; 16], namespace: u32, header: &Header) -> Result<(Self, [u8; 16])> {
        let (source, identity) = (Hkdf::<Sha256>::new(Some(&salt), &*secret.0), digest(header));
        let number = namespace.to_le_bytes();
        let derive = |purpose: &str, into: &mut [u8]| {
            source
                .expand_multi_info(&[b"kvmem store 1 ", purpose.as_bytes(), &number, &identity], into)
                .map_err(|error| error!(Panic, "derive a key of a namespace: {error}"))
        };
        let [mut blocks, mut hash, mut keys] = [(); 3].map(|()| Zeroizing::new([0; 32]));
        let mut check = [0; 16];
        derive("blocks", &mut *blocks)?;
        derive("hash", &mut *hash)?;
        derive("keys", &mut *keys)?;
        derive("check", &mut check)?;
        let failed = |error: &dyn std::fmt::Display| error!(Panic, "use a key of a namespace: {error}");
        let mut associated = [0; 20];
        associated[..16].copy_from_slice(&header.id);
        associated[16..].copy_from_slice(&number);
        let cipher = Self {
            namespace,
            blocks: XChaCha20Poly1305::new_from_slice(&*blocks).map_err(|error| failed(&error))?,
            hash: <Hmac<Sha256> as KeyInit>::new_from_slice(&*hash).map_err(|error| failed(&error))?,
            keys: Hkdf::from_prk(&*keys).map_err(|error| failed(&error))?,
            associated,
        };
        Ok((cipher, check))
    }

    /// What the index has instead of a key of the caller.
    pub fn key(&self, key: &Key) -> Key {
        Key::padded(&self.hashed(key)).in_namespace(self.namespace)
    }

    fn hashed(&self, key: &Key) -> [u8; HASH] {
        let whole = self.hash.clone().chain_update(key.bytes()).finalize().into_bytes();
        let mut hash = [0; HASH];
        hash.copy_from_slice(&whole[..HASH]);
        hash
    }

    /// Encrypts the bytes of a block, whose keys are those of the caller.
    pub fn seal(&self, block: &NewBlock, bytes: &mut [u8]) -> Result<Seal> {
        let nonce = random::<NONCE>()?;
        let mut keys = self.pad(&nonce)?;
        for (at, key) in [Some(&block.key), block.parent.as_ref()].into_iter().enumerate() {
            let bytes = key.map_or(&[][..], Key::bytes);
            keys[at * MAX..].iter_mut().zip(bytes).for_each(|(byte, other)| *byte ^= other);
        }
        let sizes = [block.key.bytes().len(), block.parent.as_ref().map_or(0, |key| key.bytes().len())];
        let (hash, sizes) = (self.hashed(&block.key), sizes.map(|size| size as u8));
        let mut seal = Seal { hash, sizes, keys, nonce, tag: [0; TAG] };
        seal.tag = self
            .blocks
            .encrypt_inout_detached(
                &XNonce::from(nonce),
                &self.associated(&seal),
                InOutBuf::from(&mut *bytes),
            )
            .map_err(|error| error!(OutOfRange, "encrypt a block of {} bytes: {error}", bytes.len()))?
            .into();
        Ok(seal)
    }

    /// Decrypts the bytes of a block. Returns false, and leaves them encrypted, if they are not those that were sealed.
    pub fn unseal(&self, seal: &Seal, bytes: &mut [u8]) -> bool {
        let (nonce, tag) = (XNonce::from(seal.nonce), Tag::from(seal.tag));
        let associated = self.associated(seal);
        self.blocks.decrypt_inout_detached(&nonce, &associated, InOutBuf::from(bytes), &tag).is_ok()
    }

    /// The keys of the caller. Fails if they are not those that were sealed.
    pub fn block(&self, seal: &Seal) -> Result<NewBlock> {
        let mut keys = self.pad(&seal.nonce)?;
        keys.iter_mut().zip(seal.keys).for_each(|(byte, other)| *byte ^= other);
        let (own, parent) = keys.split_at(MAX);
        let key = |bytes: &[u8], size: u8| Key::new(&bytes[..usize::from(size).min(MAX)]);
        let key_of = key(own, seal.sizes[0]).ok().filter(|key| self.hashed(key) == seal.hash);
        let key_of = key_of.ok_or_else(|| error!(Corrupt, "the key of an encrypted block is damaged"))?;
        let parent = (seal.sizes[1] > 0).then(|| key(parent, seal.sizes[1])).transpose()?;
        Ok(NewBlock { key: key_of, parent })
    }

    /// What the tag authenticates beside the bytes and the nonce: all else of the seal.
    fn associated(&self, Seal { hash, sizes, keys, .. }: &Seal) -> [u8; ASSOCIATED] {
        let mut bytes = [0; ASSOCIATED];
        let parts = [&self.associated[..], hash, sizes, keys].into_iter().flatten();
        bytes.iter_mut().zip(parts).for_each(|(byte, part)| *byte = *part);
        bytes
    }

    /// The bytes by which keys of the caller are encrypted.
    fn pad(&self, nonce: &[u8; NONCE]) -> Result<[u8; KEYS]> {
        let mut pad = [0; KEYS];
        self.keys
            .expand(nonce, &mut pad)
            .map_err(|error| error!(Panic, "derive bytes for the keys of a block: {error}"))?;
        Ok(pad)
    }
}

/// The SHA-256 of all that the header says.
fn digest(header: &Header) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    add(&header.id);
    add(&header.slots.to_le_bytes());
    for (name, value) in &header.values {
        add(name.as_bytes());
        add(value.bytes());
    }
    add(&header.layout);
    hash.finalize().into()
}
