//! The wire: varints, tags and lengths.

use super::ProtoError;

/// Reads the fields of one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The bytes of one field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Raw<'a> {
    /// An integer or a boolean.
    Number(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// A string, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads the next field; `None` at the end.
    ///
    /// # Errors
    /// The bytes end early, or are not valid fields.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtoError::Overflow)?;
        let raw = match tag & 7 {
            0 => Raw::Number(self.varint()?),
            1 => Raw::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::Overflow)?;
                Raw::Bytes(self.take(length)?)
            }
            5 => Raw::Fixed32(u32::from_le_bytes(self.array()?)),
            other => return Err(ProtoError::WireType(other as u8)),
        };
        if number == 0 {
            return Err(ProtoError::WireType(0));
        }
        Ok(Some((number, raw)))
    }

    /// Reads a number of seven bits a byte; `None` would be too many bytes.
    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.rest.split_first().ok_or(ProtoError::Short)?;
            self.rest = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtoError::Overflow)
    }

    /// Returns whether all bytes were read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        if length > self.rest.len() {
            return Err(ProtoError::Short);
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        self.take(N)?.try_into().map_err(|_| ProtoError::Short)
    }
}

/// Writes a number of seven bits a byte.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes an integer or a boolean.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Writes a floating point number.
pub(crate) fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes bytes with their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
