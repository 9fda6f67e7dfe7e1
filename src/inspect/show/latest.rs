//! Services that are read again only after a commit.

use nft::kernel::Generation;

use super::read;
use super::services::Services;
use crate::refusals::{RefusedPackets, refused_packets};
use crate::tables::{TableReader, TablesError};

/// Services of the last read. Empty before the first read and after an error.
#[derive(Debug, Default)]
pub struct Latest {
    reader: Option<TableReader>,
    services: Services,
    /// Generation of `services`; `None` if they must be read.
    generation: Option<Generation>,
}

impl Latest {
    /// Reads the services if the generation has changed since the last read. Returns the
    /// generation.
    ///
    /// # Errors
    /// See [`TablesError`].
    pub fn refresh(&mut self) -> Result<Generation, TablesError> {
        let refreshed = self.read_changed();
        if refreshed.is_err() {
            *self = Self::default();
        }
        refreshed
    }

    /// Returns the services of the last read.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the packets that the rules have refused, read now. Nothing before the first read.
    ///
    /// # Errors
    /// See [`TablesError`].
    pub fn refused(&mut self) -> Result<RefusedPackets, TablesError> {
        let tables = self.reader.as_mut().map(TableReader::tables).transpose()?;
        Ok(refused_packets(tables.as_deref().unwrap_or_default()))
    }

    fn read_changed(&mut self) -> Result<Generation, TablesError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none @ None => none.insert(TableReader::open()?),
        };
        let generation = reader.generation()?;
        if self.generation != Some(generation) {
            self.services = read(reader)?.0;
            self.generation = Some(generation).filter(|_| !self.services.is_torn());
        }
        Ok(generation)
    }
}
