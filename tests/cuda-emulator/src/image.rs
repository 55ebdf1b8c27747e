//! Device images: reading one from an address without a size, and looking it through before the dynamic linker,
//! which trusts what it is given, gets to see it.

use std::collections::BTreeMap;
use std::ops::Range;

use object::elf::{self, DynamicTag, ProgramFlags, ProgramType, RelocationType, SymbolType};

use crate::code::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_BINARY_FOR_GPU, Code, Result};
use crate::{launch, tag};

/// An image that can be loaded.
#[derive(Debug)]
pub struct Image {
    /// The file, with the machine number that the dynamic linker wants.
    pub bytes: Vec<u8>,
    /// What it defines.
    pub symbols: Symbols,
    /// The addresses that it takes up once loaded, relative to its base.
    pub segments: Vec<Range<usize>>,
}

/// What an image defines, by name.
pub type Symbols = BTreeMap<String, Symbol>;

/// A symbol that an image defines.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Relative to the base.
    pub value: usize,
    /// In bytes.
    pub size: usize,
    /// Whether it is a function.
    pub is_function: bool,
}

/// Copies the image at an address. The driver is told no size: the image's own headers say it.
pub fn read(address: usize) -> Result<Vec<u8>> {
    if address == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let read = |len: usize| -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        (launch::peek(address, &mut bytes) == len).then_some(bytes)
    };
    let whole = || -> Option<Vec<u8>> {
        let header = read(tag::HEADER_LEN)?;
        tag::machine(&header)?;
        let headers = read(tag::headers_len(&header)?)?;
        read(tag::len(&headers)?)
    };
    whole().ok_or(CUDA_ERROR_INVALID_IMAGE)
}

/// Looks an image through. Whatever is wrong with it, the answer is a code.
pub fn check(mut bytes: Vec<u8>) -> Result<Image> {
    let machine = tag::machine(&bytes).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    if machine != tag::EM_CUDA {
        return Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    if tag::len(&bytes) != Some(bytes.len()) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    let flags = tag::flags(&bytes).unwrap_or(0);
    if flags != 0 && flags != tag::check_sum(&bytes) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    let (symbols, segments) =
        Checker::new(&bytes).and_then(|checker| checker.check()).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    bytes[tag::MACHINE_AT..tag::MACHINE_AT + 2].copy_from_slice(&tag::EM_X86_64.to_le_bytes());
    Ok(Image { bytes, symbols, segments })
}

/// Little-endian numbers of a file; nothing where the file has none.
#[derive(Clone, Copy)]
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn number(self, at: usize, len: usize) -> Option<usize> {
        let mut word = [0; 8];
        word.get_mut(..len)?.copy_from_slice(self.0.get(at..at.checked_add(len)?)?);
        usize::try_from(u64::from_le_bytes(word)).ok()
    }

    fn half(self, at: usize) -> Option<usize> {
        self.number(at, 2)
    }

    fn word(self, at: usize) -> Option<usize> {
        self.number(at, 4)
    }

    fn long(self, at: usize) -> Option<usize> {
        self.number(at, 8)
    }
}

/// A loadable segment.
struct Load {
    offset: usize,
    file_len: usize,
    memory: Range<usize>,
    flags: ProgramFlags,
}

/// The size of an entry of each table.
const DYNAMIC_LEN: usize = 16;
const SYMBOL_LEN: usize = 24;
const RELA_LEN: usize = 24;

/// Larger alignments and thread-local blocks are nothing that a compiler makes.
const MAX_ALIGN: usize = 2 << 20;
const MAX_TLS: usize = 64 << 10;

/// The tags that may be in a dynamic section and need no check.
const PLAIN_TAGS: [DynamicTag; 7] = [
    elf::DT_PLTREL,
    elf::DT_FLAGS,
    elf::DT_FLAGS_1,
    elf::DT_BIND_NOW,
    elf::DT_SYMBOLIC,
    elf::DT_RELACOUNT,
    elf::DT_VERNEEDNUM,
];

/// An image under examination: its segments and its dynamic section.
struct Checker<'a> {
    file: File<'a>,
    loads: Vec<Load>,
    dynamic_range: Range<usize>,
    dynamic: BTreeMap<DynamicTag, usize>,
    names: Vec<usize>,
}

impl<'a> Checker<'a> {
    /// Reads the program headers and the dynamic section.
    fn new(bytes: &'a [u8]) -> Option<Checker<'a>> {
        let file = File(bytes);
        let mut checker =
            Checker { file, loads: Vec::new(), dynamic_range: 0..0, dynamic: BTreeMap::new(), names: vec![] };
        let headers = (0..file.half(56)?).map(|i| Some(file.long(32)? + i * 56)).collect::<Option<Vec<_>>>()?;
        let kind = |at: usize| file.word(at).map(|kind| ProgramType(kind as u32));
        for &at in headers.iter().filter(|&&at| kind(at) == Some(elf::PT_LOAD)) {
            checker.add_load(at)?;
        }
        for &at in &headers {
            checker.check_segment(kind(at)?, at)?;
        }
        checker.read_dynamic()?;
        Some(checker)
    }

    fn add_load(&mut self, at: usize) -> Option<()> {
        let [offset, address, file_len, len, align] = self.segment(at)?;
        let end = address.checked_add(len)?;
        let last = self.loads.last().map_or(0, |load| load.memory.end.next_multiple_of(4096));
        let fits = file_len <= len && len > 0 && end <= tag::MAX_LEN && offset % 4096 == address % 4096;
        // Each on pages of its own, in order.
        let apart = address - address % 4096 >= last && (4096..=MAX_ALIGN).contains(&align) && align.is_power_of_two();
        let flags = ProgramFlags(self.file.word(at + 4)? as u32);
        self.loads.push(Load { offset, file_len, memory: address..end, flags });
        (fits && apart).then_some(())
    }

    /// Offset, address, length in the file, length in memory, alignment. The file has all of it: see `tag::len`.
    fn segment(&self, at: usize) -> Option<[usize; 5]> {
        let field = |offset| self.file.long(at + offset);
        Some([field(8)?, field(16)?, field(32)?, field(40)?, field(48)?])
    }

    fn check_segment(&mut self, kind: ProgramType, at: usize) -> Option<()> {
        let [offset, address, file_len, len, align] = self.segment(at)?;
        match kind {
            elf::PT_LOAD | elf::PT_GNU_STACK | elf::PT_NULL => Some(()),
            elf::PT_DYNAMIC => {
                let once = self.dynamic_range.is_empty() && file_len == len && self.offset_of(address, len)? == offset;
                self.dynamic_range = address..address + len;
                once.then_some(())
            }
            elf::PT_TLS => {
                let fits = file_len <= len && len <= MAX_TLS && align.is_power_of_two() && align <= 4096;
                (fits && self.offset_of(address, file_len)? == offset).then_some(())
            }
            elf::PT_GNU_RELRO => {
                self.loads.iter().any(|l| l.memory.contains(&address) && len <= l.memory.end - address).then_some(())
            }
            elf::PT_NOTE | elf::PT_GNU_PROPERTY | elf::PT_GNU_EH_FRAME => {
                (file_len == len && self.offset_of(address, len)? == offset).then_some(())
            }
            _ => None,
        }
    }

    /// Where in the file `len` bytes at an address come from, if all of them do.
    fn offset_of(&self, address: usize, len: usize) -> Option<usize> {
        let load = self.loads.iter().find(|load| load.memory.contains(&address))?;
        let offset = address - load.memory.start;
        (offset.checked_add(len)? <= load.file_len).then(|| load.offset + offset)
    }

    /// Whether `len` bytes at an address are memory with these permissions.
    fn has(&self, address: usize, len: usize, flags: ProgramFlags) -> bool {
        let fits = |load: &Load| load.memory.contains(&address) && len <= load.memory.end - address;
        self.loads.iter().any(|load| fits(load) && load.flags.0 & flags.0 == flags.0)
    }

    fn read_dynamic(&mut self) -> Option<()> {
        let mut at = self.offset_of(self.dynamic_range.start, self.dynamic_range.len())?;
        let end = at + self.dynamic_range.len();
        while at + DYNAMIC_LEN <= end {
            let (tag, value) = (DynamicTag(self.file.long(at)? as i64), self.file.long(at + 8)?);
            at += DYNAMIC_LEN;
            match tag {
                elf::DT_NULL => return Some(()),
                elf::DT_NEEDED | elf::DT_SONAME | elf::DT_RPATH | elf::DT_RUNPATH => self.names.push(value),
                _ if self.dynamic.insert(tag, value).is_some() => return None,
                _ => {}
            }
        }
        None
    }

    fn tag(&self, tag: DynamicTag) -> Option<usize> {
        self.dynamic.get(&tag).copied()
    }

    /// All the rest. The answer is the defined symbols and the memory that the segments take up.
    fn check(&self) -> Option<(Symbols, Vec<Range<usize>>)> {
        let known = |tag: DynamicTag| PLAIN_TAGS.contains(&tag) || CHECKED_TAGS.contains(&tag);
        if !self.dynamic.keys().all(|&tag| known(tag)) {
            return None;
        }
        let strings_len = self.tag(elf::DT_STRSZ)?;
        let strings = self.offset_of(self.tag(elf::DT_STRTAB)?, strings_len)?;
        let strings = self.file.0.get(strings..strings + strings_len)?;
        if strings.last() != Some(&0) || self.names.iter().any(|&name| name >= strings_len) {
            return None;
        }
        let count = self.count_symbols()?;
        let table = self.offset_of(self.tag(elf::DT_SYMTAB)?, count.checked_mul(SYMBOL_LEN)?)?;
        if self.tag(elf::DT_SYMENT)? != SYMBOL_LEN {
            return None;
        }
        let mut symbols = self.check_symbols(table, count, strings)?;
        for (name, symbol) in self.local_symbols()? {
            symbols.entry(name).or_insert(symbol);
        }
        self.check_versions(count, strings_len)?;
        let relative = self.check_relocations(count)?;
        self.check_functions(&relative)?;
        Some((symbols, self.loads.iter().map(|load| load.memory.clone()).collect()))
    }

    /// Walks the hash table as the dynamic linker would; the answer is the number of symbols.
    fn count_symbols(&self) -> Option<usize> {
        let table = self.offset_of(self.tag(elf::DT_GNU_HASH)?, 16)?;
        let field = |i: usize| self.file.word(table + 4 * i);
        let (buckets, first, words, shift) = (field(0)?, field(1)?, field(2)?, field(3)?);
        if buckets == 0 || !words.is_power_of_two() || shift >= 64 {
            return None;
        }
        let start = table + 16 + words.checked_mul(8)?;
        let chains = start + buckets.checked_mul(4)?;
        // All of the table is in one segment's file part.
        self.offset_of(self.tag(elf::DT_GNU_HASH)?, chains.checked_sub(table)?)?;
        let mut count = first;
        for bucket in 0..buckets {
            let mut symbol = self.file.word(start + 4 * bucket)?;
            if symbol == 0 {
                continue;
            }
            loop {
                let at = chains + 4 * symbol.checked_sub(first)?;
                self.offset_of(self.tag(elf::DT_GNU_HASH)?, at + 4 - table)?;
                count = count.max(symbol + 1);
                if self.file.word(at)? & 1 == 1 {
                    break;
                }
                symbol += 1;
            }
        }
        Some(count)
    }

    /// The whole symbol table, if it has not been stripped: constants of a program are local in an x86 image, where
    /// on a GPU they would be global.
    fn local_symbols(&self) -> Option<Symbols> {
        let (table, count) = (self.file.long(40)?, self.file.half(60)?);
        let section = |i: usize| (i < count).then(|| table + i * 64);
        for at in (0..count).map(|i| table + i * 64) {
            if self.file.word(at + 4)? == elf::SHT_SYMTAB.0 as usize {
                let strings = section(self.file.word(at + 40)?)?;
                let start = self.file.long(strings + 24)?;
                let strings = self.file.0.get(start..start.checked_add(self.file.long(strings + 32)?)?)?;
                return self.check_symbols(self.file.long(at + 24)?, self.file.long(at + 32)? / SYMBOL_LEN, strings);
            }
        }
        Some(Symbols::new())
    }

    /// A symbol table's definitions.
    fn check_symbols(&self, table: usize, count: usize, strings: &[u8]) -> Option<Symbols> {
        let mut symbols = Symbols::new();
        for at in (0..count).map(|i| table + i * SYMBOL_LEN) {
            let name = strings.get(self.file.word(at)?..)?.split(|&byte| byte == 0).next()?;
            let kind = SymbolType(self.file.number(at + 4, 1)? as u8 & 15);
            let (section, value, size) = (self.file.half(at + 6)?, self.file.long(at + 8)?, self.file.long(at + 16)?);
            let symbol = Symbol { value, size, is_function: kind == elf::STT_FUNC };
            let placed = match kind {
                _ if section == usize::from(elf::SHN_UNDEF.0) => continue,
                elf::STT_FUNC => self.has(value, size.max(1), elf::PF_X),
                // Of no size: a mark at the end of something.
                elf::STT_OBJECT if size == 0 => value <= tag::MAX_LEN,
                elf::STT_OBJECT => self.has(value, size, ProgramFlags(0)),
                elf::STT_NOTYPE | elf::STT_SECTION | elf::STT_FILE | elf::STT_TLS => value <= tag::MAX_LEN,
                _ => false,
            };
            if !placed {
                return None;
            }
            if matches!(kind, elf::STT_FUNC | elf::STT_OBJECT) {
                symbols.insert(String::from_utf8(name.to_vec()).ok()?, symbol);
            }
        }
        Some(symbols)
    }

    /// The versions that symbols need: the dynamic linker counts them and then indexes by what the symbols say.
    fn check_versions(&self, count: usize, strings_len: usize) -> Option<()> {
        let Some(symbol_versions) = self.tag(elf::DT_VERSYM) else {
            return self.tag(elf::DT_VERNEED).is_none().then_some(());
        };
        let mut largest = 1;
        let mut need = self.tag(elf::DT_VERNEED);
        let needs = self.tag(elf::DT_VERNEEDNUM).unwrap_or(0);
        for i in 0..needs {
            let at = self.offset_of(need?, 16)?;
            let mut aux = need?.checked_add(self.file.word(at + 8)?)?;
            let auxes = self.file.half(at + 2)?;
            for j in 0..auxes {
                let at = self.offset_of(aux, 16)?;
                largest = largest.max(self.file.half(at + 6)? & 0x7fff);
                let next = self.file.word(at + 12)?;
                if self.file.word(at + 8)? >= strings_len || (next == 0) != (j + 1 == auxes) {
                    return None;
                }
                aux = aux.checked_add(next)?;
            }
            let next = self.file.word(at + 12)?;
            if self.file.half(at)? != 1 || self.file.word(at + 4)? >= strings_len || (next == 0) != (i + 1 == needs) {
                return None;
            }
            need = need?.checked_add(next);
        }
        let table = self.offset_of(symbol_versions, count.checked_mul(2)?)?;
        let index = |i: usize| Some(self.file.half(table + 2 * i)? & 0x7fff);
        (0..count).all(|i| index(i).is_some_and(|index| index <= largest)).then_some(())
    }

    /// Every place that is relocated may be written; the answer is the places that get an address of the image.
    fn check_relocations(&self, count: usize) -> Option<BTreeMap<usize, usize>> {
        let tables = [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)];
        if self.tag(elf::DT_RELA).is_some() && self.tag(elf::DT_RELAENT)? != RELA_LEN {
            return None;
        }
        if self.tag(elf::DT_JMPREL).is_some() && self.tag(elf::DT_PLTREL)? != elf::DT_RELA.0 as usize {
            return None;
        }
        let mut relative = BTreeMap::new();
        for (address, len) in tables {
            let Some(address) = self.tag(address) else { continue };
            let len = self.tag(len)?;
            let table = self.offset_of(address, len)?;
            let counted =
                if Some(address) == self.tag(elf::DT_RELA) { self.tag(elf::DT_RELACOUNT).unwrap_or(0) } else { 0 };
            if len % RELA_LEN != 0 || counted > len / RELA_LEN {
                return None;
            }
            for (i, at) in (0..len / RELA_LEN).map(|i| (i, table + i * RELA_LEN)) {
                let (place, kind, symbol, addend) = (
                    self.file.long(at)?,
                    RelocationType(self.file.word(at + 8)? as u32),
                    self.file.word(at + 12)?,
                    self.file.long(at + 16)?,
                );
                let in_dynamic = place < self.dynamic_range.end && place + 8 > self.dynamic_range.start;
                if !self.has(place, 8, elf::PF_W) || in_dynamic || symbol >= count.max(1) {
                    return None;
                }
                match kind {
                    elf::R_X86_64_RELATIVE if self.has(addend, 0, ProgramFlags(0)) => {
                        relative.insert(place, addend);
                    }
                    // These may come only after those that are counted as relative.
                    elf::R_X86_64_GLOB_DAT
                    | elf::R_X86_64_JUMP_SLOT
                    | elf::R_X86_64_64
                    | elf::R_X86_64_DTPMOD64
                    | elf::R_X86_64_DTPOFF64
                    | elf::R_X86_64_TPOFF64
                        if i >= counted => {}
                    _ => return None,
                }
            }
        }
        Some(relative)
    }

    /// What the dynamic linker calls is code of the image.
    fn check_functions(&self, relative: &BTreeMap<usize, usize>) -> Option<()> {
        let is_code = |address: usize| self.has(address, 1, elf::PF_X);
        let single = [elf::DT_INIT, elf::DT_FINI].iter().all(|&tag| self.tag(tag).is_none_or(is_code));
        let arrays = [(elf::DT_INIT_ARRAY, elf::DT_INIT_ARRAYSZ), (elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ)];
        for (address, len) in arrays {
            let Some(start) = self.tag(address) else { continue };
            let len = self.tag(len)?;
            let filled = |slot: usize| relative.get(&(start + 8 * slot)).is_some_and(|&address| is_code(address));
            if len % 8 != 0 || !self.has(start, len, ProgramFlags(0)) || !(0..len / 8).all(filled) {
                return None;
            }
        }
        let pltgot = self.tag(elf::DT_PLTGOT).is_none_or(|address| self.has(address, 24, elf::PF_W));
        (single && pltgot).then_some(())
    }
}

/// The tags that [`Checker::check`] looks at.
const CHECKED_TAGS: [DynamicTag; 20] = [
    elf::DT_STRTAB,
    elf::DT_STRSZ,
    elf::DT_SYMTAB,
    elf::DT_SYMENT,
    // The dynamic linker prefers the GNU table and does not look at this one.
    elf::DT_HASH,
    elf::DT_GNU_HASH,
    elf::DT_RELA,
    elf::DT_RELASZ,
    elf::DT_RELAENT,
    elf::DT_JMPREL,
    elf::DT_PLTRELSZ,
    elf::DT_PLTGOT,
    elf::DT_INIT,
    elf::DT_FINI,
    elf::DT_INIT_ARRAY,
    elf::DT_INIT_ARRAYSZ,
    elf::DT_FINI_ARRAY,
    elf::DT_FINI_ARRAYSZ,
    elf::DT_VERSYM,
    elf::DT_VERNEED,
];

/// The code for an image that the dynamic linker refuses.
pub fn refused(message: &str) -> Code {
    if message.contains("undefined symbol") {
        crate::code::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
    } else {
        crate::code::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
    }
}
