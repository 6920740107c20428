// SPDX-License-Identifier: Apache-2.0
//! The published names of a broker, with their objects and tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fetch_request::{FetchRequest, check_name};
use super::token::Token;
use crate::base::{Error, Mutex, MutexGuard, Result, deadline_of, ensure, error, fail};
use crate::region::Access;
use crate::share::frame::Parcel;

#[derive(Clone, Copy, Debug)]
pub struct TokenTerms {
    pub access: Access,
    /// The number of times that it can be used; 0 means no limit.
    pub max_uses: u64,
    /// Its lifetime; `None` means as long as the name is published.
    pub lifetime: Option<Duration>,
}

/// The published names of a broker.
#[derive(Default)]
pub struct Catalogue(Mutex<HashMap<String, Entry>>);

struct Entry {
    publication: Arc<dyn Publication>,
    grants: Vec<Grant>,
}

struct Grant {
    token: Token,
    access: Access,
    uses_left: Option<u64>,
    expires: Option<Instant>,
}

impl Grant {
    fn new(terms: &TokenTerms) -> Result<Self> {
        Ok(Self {
            token: Token::generate()?,
            access: terms.access,
            uses_left: (terms.max_uses > 0).then_some(terms.max_uses),
            // A lifetime that exceeds the clock's range never ends.
            expires: deadline_of(terms.lifetime),
        })
    }

    fn is_good(&self, now: Instant) -> bool {
        self.uses_left != Some(0) && self.expires.is_none_or(|expires| now < expires)
    }
}

impl Entry {
    /// Adds a token. Removes those that are no longer valid, so that they do not accumulate.
    fn grant(&mut self, terms: &TokenTerms) -> Result<Token> {
        let now = Instant::now();
        self.grants.retain(|grant| grant.is_good(now));
        let grant = Grant::new(terms)?;
        let token = grant.token;
        self.grants.push(grant);
        Ok(token)
    }

    /// Compares with every token, so that the duration reveals nothing about them.
    fn find(&mut self, token: &Token) -> Option<&mut Grant> {
        let now = Instant::now();
        let mut found = None;
        for grant in &mut self.grants {
            if grant.token.is(token) {
                found = Some(grant);
            }
        }
        found.filter(|grant| grant.is_good(now))
    }
}

impl Catalogue {
    pub fn publish(
        &self,
        name: &str,
        publication: Arc<dyn Publication>,
        terms: &TokenTerms,
    ) -> Result<Token> {
        check_name(name)?;
        let mut entry = Entry { publication, grants: Vec::new() };
        let token = entry.grant(terms)?;
        let mut entries = self.lock();
        ensure!(
            !entries.contains_key(name),
            AlreadyExists,
            "'{name}' is published already; make another token by kvmem_broker_grant, or call kvmem_broker_unpublish first"
        );
        entries.insert(name.to_string(), entry);
        Ok(token)
    }

    /// Creates another token for a name.
    pub fn grant(&self, name: &str, terms: &TokenTerms) -> Result<Token> {
        match self.lock().get_mut(name) {
            Some(entry) => entry.grant(terms),
            None => fail!(NotFound, "'{name}' is not published"),
        }
    }

    pub fn unpublish(&self, name: &str) -> Result<()> {
        // The object is dropped without the lock.
        let removed = self.lock().remove(name);
        ensure!(removed.is_some(), NotFound, "'{name}' is not published");
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns the object of a request, and the access that its token grants. Does not count as a use of the token.
    pub fn look_up(&self, request: &FetchRequest) -> Result<(Arc<dyn Publication>, Access)> {
        let mut entries = self.lock();
        let entry = entries.get_mut(&request.name).ok_or_else(nothing)?;
        let grant = entry.find(&request.token).ok_or_else(nothing)?;
        check_access(grant, request)?;
        let access = grant.access;
        Ok((entry.publication.clone(), access))
    }

    /// Counts a use of a request's token. Fails if the token is no longer valid.
    pub fn redeem(&self, request: &FetchRequest) -> Result<()> {
        let mut entries = self.lock();
        let entry = entries.get_mut(&request.name).ok_or_else(nothing)?;
        let grant = entry.find(&request.token).ok_or_else(nothing)?;
        check_access(grant, request)?;
        if let Some(left) = &mut grant.uses_left {
            *left -= 1;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock()
    }
}

fn check_access(grant: &Grant, request: &FetchRequest) -> Result<()> {
    ensure!(
        request.access.is_none_or(|asked| asked <= grant.access),
        PermissionDenied,
        "the token grants read access, and write access was requested"
    );
    Ok(())
}

/// One error for an unknown name and for an invalid token, so that clients cannot probe for names.
fn nothing() -> Error {
    error!(PermissionDenied, "the name is not published, or the token is wrong, used up or expired")
}

/// The object published under a name.
pub trait Publication: Send + Sync {
    /// Returns the parcel for a client whose token grants this access. `asked` is the requested access, which does not exceed
    /// the granted one; `None` requests all that is granted. Called on the broker's thread for each fetch, with no lock
    /// held; no other client is served during the call.
    fn parcel(&self, granted: Access, asked: Option<Access>) -> Result<Arc<Parcel>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::share::frame::Parcel;

    struct Nothing;
    impl Publication for Nothing {
        fn parcel(&self, _: Access, _: Option<Access>) -> Result<Arc<Parcel>> {
            Ok(Arc::default())
        }
    }

    const TERMS: TokenTerms = TokenTerms { access: Access::Read, max_uses: 0, lifetime: None };

    fn use_once(catalogue: &Catalogue, name: &str, token: Token, access: Access) -> Result<()> {
        let request = FetchRequest { name: name.to_string(), token, access: Some(access) };
        catalogue.look_up(&request)?;
        catalogue.redeem(&request)
    }

    fn with(terms: &TokenTerms) -> (Catalogue, Token) {
        let catalogue = Catalogue::default();
        let token = catalogue.publish("kv", Arc::new(Nothing), terms).unwrap();
        (catalogue, token)
    }

    #[test]
    fn a_token_is_valid_for_one_name_only() {
        let (catalogue, token) = with(&TERMS);
        let other = catalogue.publish("other", Arc::new(Nothing), &TERMS).unwrap();
        use_once(&catalogue, "kv", token, Access::Read).unwrap();
        let refused = [("kv", other), ("other", token), ("none", token)];
        let mut errors = refused
            .map(|(name, token)| use_once(&catalogue, name, token, Access::Read).unwrap_err().to_string());
        errors.sort();
        assert_eq!(errors[0], errors[2], "an unknown name returns the same error as a wrong token");
    }

    #[test]
    fn a_token_is_used_as_often_as_granted() {
        let (catalogue, token) = with(&TokenTerms { max_uses: 2, ..TERMS });
        for _ in 0..2 {
            use_once(&catalogue, "kv", token, Access::Read).unwrap();
        }
        let error = use_once(&catalogue, "kv", token, Access::Read).unwrap_err();
        assert_eq!(error.status(), Status::PermissionDenied);
        let again = catalogue.grant("kv", &TERMS).unwrap();
        use_once(&catalogue, "kv", again, Access::Read).unwrap();
    }

    #[test]
    fn a_token_ends_with_its_lifetime() {
        let (catalogue, token) = with(&TokenTerms { lifetime: Some(Duration::ZERO), ..TERMS });
        let error = use_once(&catalogue, "kv", token, Access::Read).unwrap_err();
        assert_eq!(error.status(), Status::PermissionDenied);
        let (catalogue, token) = with(&TokenTerms { lifetime: Some(Duration::MAX), ..TERMS });
        use_once(&catalogue, "kv", token, Access::Read).unwrap();
    }

    #[test]
    fn a_token_for_reading_does_not_permit_writing() {
        let (catalogue, reader) = with(&TERMS);
        let writer = catalogue.grant("kv", &TokenTerms { access: Access::ReadWrite, ..TERMS }).unwrap();
        let error = use_once(&catalogue, "kv", reader, Access::ReadWrite).unwrap_err();
        assert_eq!(error.status(), Status::PermissionDenied);
        use_once(&catalogue, "kv", writer, Access::ReadWrite).unwrap();
        use_once(&catalogue, "kv", writer, Access::Read).unwrap();
        for (token, granted) in [(reader, Access::Read), (writer, Access::ReadWrite)] {
            let all = FetchRequest { name: "kv".into(), token, access: None };
            assert_eq!(catalogue.look_up(&all).unwrap().1, granted);
        }
    }

    #[test]
    fn a_name_is_published_once_and_unpublished_with_its_tokens() {
        let (catalogue, token) = with(&TERMS);
        let twice = catalogue.publish("kv", Arc::new(Nothing), &TERMS).unwrap_err();
        assert_eq!(twice.status(), Status::AlreadyExists);
        catalogue.unpublish("kv").unwrap();
        assert_eq!(catalogue.unpublish("kv").unwrap_err().status(), Status::NotFound);
        assert_eq!(catalogue.grant("kv", &TERMS).unwrap_err().status(), Status::NotFound);
        catalogue.publish("kv", Arc::new(Nothing), &TERMS).unwrap();
        assert!(use_once(&catalogue, "kv", token, Access::Read).is_err());
        for name in ["", &"x".repeat(256)] {
            let error = catalogue.publish(name, Arc::new(Nothing), &TERMS).unwrap_err();
            assert_eq!(error.status(), Status::InvalidArgument);
        }
    }

    #[test]
    fn used_tokens_are_removed() {
        let (catalogue, _) = with(&TERMS);
        for _ in 0..100 {
            let token = catalogue.grant("kv", &TokenTerms { max_uses: 1, ..TERMS }).unwrap();
            use_once(&catalogue, "kv", token, Access::Read).unwrap();
        }
        assert!(catalogue.lock()["kv"].grants.len() <= 2);
    }
}
