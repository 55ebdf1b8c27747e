//! What makes an x86-64 shared object a device image of the emulated CUDA device: the machine number, and a check sum.
//!
//! `omptarget retarget` writes both and the emulator reads them; this file is compiled into each.

/// `e_machine` of x86-64.
pub const EM_X86_64: u16 = 62;
/// `e_machine` of an NVIDIA GPU.
pub const EM_CUDA: u16 = 190;

/// Where `e_machine` and `e_flags` are in an ELF64 header, and how long that is.
pub const MACHINE_AT: usize = 18;
/// See [`MACHINE_AT`].
pub const FLAGS_AT: usize = 48;
/// See [`MACHINE_AT`].
pub const HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: u64 = 56;
const SECTION_HEADER_LEN: u64 = 64;

/// An image beyond this size is nonsense.
pub const MAX_LEN: usize = 1 << 30;

fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..len)?.copy_from_slice(bytes.get(at..at.checked_add(len)?)?);
    Some(u64::from_le_bytes(word))
}

/// `e_machine` of what begins like a little-endian ELF64 shared object.
pub fn machine(header: &[u8]) -> Option<u16> {
    const ET_DYN: u64 = 3;
    let begins = header.starts_with(b"\x7fELF\x02\x01\x01") && number(header, 16, 2)? == ET_DYN;
    if begins { u16::try_from(number(header, MACHINE_AT, 2)?).ok() } else { None }
}

/// How many bytes the tables of headers need, as the header says.
pub fn headers_len(header: &[u8]) -> Option<usize> {
    let table = |offset: usize, size: usize, count: usize, expected: u64| -> Option<u64> {
        let (start, size, count) = (number(header, offset, 8)?, number(header, size, 2)?, number(header, count, 2)?);
        if count == 0 {
            return Some(HEADER_LEN as u64);
        }
        if size == expected { start.checked_add(size * count) } else { None }
    };
    let end = table(32, 54, 56, PROGRAM_HEADER_LEN)?.max(table(40, 58, 60, SECTION_HEADER_LEN)?);
    usize::try_from(end).ok().filter(|&end| end <= MAX_LEN)
}

/// How long the image is: to the end of its last table, segment or section. `bytes` must have all the headers.
pub fn len(bytes: &[u8]) -> Option<usize> {
    const SHT_NOBITS: u64 = 8;
    let mut end = headers_len(bytes)? as u64;
    for i in 0..number(bytes, 56, 2)? {
        let at = usize::try_from(number(bytes, 32, 8)? + i * PROGRAM_HEADER_LEN).ok()?;
        end = end.max(number(bytes, at + 8, 8)?.checked_add(number(bytes, at + 32, 8)?)?);
    }
    for i in 0..number(bytes, 60, 2)? {
        let at = usize::try_from(number(bytes, 40, 8)? + i * SECTION_HEADER_LEN).ok()?;
        if number(bytes, at + 4, 4)? != SHT_NOBITS {
            end = end.max(number(bytes, at + 24, 8)?.checked_add(number(bytes, at + 32, 8)?)?);
        }
    }
    usize::try_from(end).ok().filter(|&end| end <= MAX_LEN)
}

/// FNV-1a over the image as an emulated GPU's, without `e_flags`. A changed byte always changes it. It is never 0,
/// which stands for no check sum.
pub fn check_sum(image: &[u8]) -> u32 {
    let [low, high] = EM_CUDA.to_le_bytes();
    let byte = |(at, &byte): (usize, &u8)| match at {
        _ if at == MACHINE_AT => low,
        _ if at == MACHINE_AT + 1 => high,
        _ if (FLAGS_AT..FLAGS_AT + 4).contains(&at) => 0,
        _ => byte,
    };
    let sum = image
        .iter()
        .enumerate()
        .map(byte)
        .fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    sum.max(1)
}

/// `e_flags`, where the check sum is.
pub fn flags(header: &[u8]) -> Option<u32> {
    u32::try_from(number(header, FLAGS_AT, 4)?).ok()
}
