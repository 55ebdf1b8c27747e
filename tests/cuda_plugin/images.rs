//! Damaged device images: the plugin's check and its loading refuse them or take them, and read nothing beyond them.
//!
//! Each image ends where its page ends, and the next page cannot be read: a byte too far is a crash.

use crate::harness::{Plugin, child, device_image, end, image_bytes, is_child};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};
use std::ptr::null_mut;

/// How an image is damaged.
#[derive(Clone, Debug)]
enum Damage {
    /// Cut off.
    Cut(Index),
    /// Bits flipped.
    Flip(Vec<(Index, u8)>),
    /// A field of the file's header, or of the tables of headers that it has, overwritten: where, how long, with what.
    Field(Index, bool, u64),
    /// Something else altogether, perhaps with the right first letters.
    Other(Vec<u8>, bool),
}

/// The file's header, the program headers and the section headers.
const HEADER: usize = 64;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..0x2000,
        // Sums with it wrap around.
        (0u64..256).prop_map(|small| u64::MAX - small),
        (0u32..64).prop_map(|bit| 1 << bit),
    ]
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        prop::collection::vec((any::<Index>(), 0u8..8), 1..9).prop_map(Damage::Flip),
        (any::<Index>(), any::<bool>(), number()).prop_map(|(at, first, value)| Damage::Field(at, first, value)),
        (prop::collection::vec(any::<u8>(), 0..300), any::<bool>()).prop_map(|(bytes, elf)| Damage::Other(bytes, elf)),
    ];
    prop::collection::vec(one, 1..3)
}

/// Where `e_flags` is: the emulator's check sum, which is not looked at if it is 0.
const FLAGS: std::ops::Range<usize> = 48..52;

fn damaged(image: &[u8], damage: &[Damage]) -> Vec<u8> {
    let mut bytes = image.to_vec();
    for damage in damage {
        match damage {
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Damage::Flip(bits) if !bytes.is_empty() => {
                for (at, bit) in bits {
                    let at = at.index(bytes.len());
                    bytes[at] ^= 1 << bit;
                }
            }
            Damage::Flip(_) => {}
            Damage::Field(at, in_header, value) => {
                let end = if *in_header { HEADER.min(bytes.len()) } else { bytes.len() };
                // Fields are aligned to their size, of which the largest is 8.
                let at = at.index(end / 4 + 1) * 4;
                for (byte, new) in bytes.iter_mut().skip(at).zip(value.to_le_bytes()) {
                    *byte = new;
                }
            }
            Damage::Other(other, elf) => {
                bytes.clone_from(other);
                if let (true, Some(start)) = (elf, bytes.get_mut(..7)) {
                    start.copy_from_slice(b"\x7fELF\x02\x01\x01");
                }
            }
        }
    }
    if let Some(flags) = bytes.get_mut(FLAGS)
        && *flags == [0; 4]
    {
        // Nobody could tell a sound image from one with damaged code, which would run.
        flags[0] = 1;
    }
    bytes
}

/// Pages that can be used, and one behind them that cannot.
struct Fenced {
    start: *mut u8,
    size: usize,
}

impl Fenced {
    fn new(size: usize) -> Self {
        const PAGE: usize = 4096;
        let size = size.next_multiple_of(PAGE);
        let (read_write, mode) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages, wherever there is room.
        let start = unsafe { libc::mmap(null_mut(), size + PAGE, read_write, mode, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the last of the pages just mapped.
        assert_eq!(unsafe { libc::mprotect(start.wrapping_byte_add(size), PAGE, libc::PROT_NONE) }, 0);
        Self { start: start.cast(), size }
    }

    /// Puts bytes before the fence.
    fn put(&mut self, bytes: &[u8]) -> std::ops::Range<*mut u8> {
        assert!(bytes.len() <= self.size);
        let end = self.start.wrapping_add(self.size);
        let start = end.wrapping_sub(bytes.len());
        // SAFETY: that many bytes lie before the fence, and nobody else has them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        start..end
    }
}

/// A plugin with its device initialised, a sound image, and a place to put it.
fn ready() -> (Plugin, Vec<u8>, Fenced) {
    let (plugin, image) = (Plugin::open(), image_bytes());
    assert_eq!(plugin.init_device(0), 0);
    let fenced = Fenced::new(image.len());
    (plugin, image, fenced)
}

const ENTRIES: [(&str, usize); 2] = [("add", 0), ("counter", 4)];

#[test]
fn damaged_images_are_refused_and_not_read_beyond_their_end() {
    const NAME: &str = "images::damaged_images_are_refused_and_not_read_beyond_their_end";
    if is_child() {
        let (plugin, image, fenced) = ready();
        let fenced = std::cell::RefCell::new(fenced);
        let entries = device_image(null_mut()..null_mut(), &ENTRIES);
        let counts = std::cell::Cell::new((0, 0, 0));
        let mut config =
            Config { failure_persistence: None, rng_algorithm: RngAlgorithm::XorShift, ..Config::default() };
        if config.rng_seed == RngSeed::Random {
            config.rng_seed = RngSeed::Fixed(14);
        }
        if std::env::var_os("PROPTEST_CASES").is_none() {
            config.cases = 20_000;
        }
        println!("\nseed {:?}", config.rng_seed);
        let result = TestRunner::new(config).run(&damage(), |damage| {
            let bytes = damaged(&image, &damage);
            let mut fenced = fenced.borrow_mut();
            let range = fenced.put(&bytes);
            let mut device = device_image(range, &[]);
            (device.entries_begin, device.entries_end) = (entries.entries_begin, entries.entries_end);
            let valid = plugin.is_valid_binary(&device);
            let table = plugin.load_binary(0, &device);
            let sound = bytes == image;
            let (tried, accepted, loaded) = counts.get();
            counts.set((tried + 1, accepted + valid, loaded + i32::from(!table.is_null())));
            if table.is_null() == sound {
                return Err(TestCaseError::fail(format!("sound: {sound}, loaded: {}", !table.is_null())));
            }
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        let counts = counts.get();
        println!("images, of which looked right, of which were loaded: {counts:?}");
        assert!(counts.0 >= 10_000 || std::env::var_os("PROPTEST_CASES").is_some());
        // Most are refused at once, but many get as far as the driver.
        assert!(counts.1 >= counts.0 / 10 && counts.1 < counts.0, "{counts:?}");
        end();
    }
    let ended = child(NAME, &[]).clean();
    let panics: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("panic")).collect();
    assert!(panics.is_empty(), "{panics:?}");
    // For who reads the output.
    ended
        .stdout
        .lines()
        .filter(|line| line.starts_with("seed") || line.starts_with("images"))
        .for_each(|line| println!("{line}"));
}

#[test]
fn every_beginning_of_an_image_is_refused() {
    const NAME: &str = "images::every_beginning_of_an_image_is_refused";
    if is_child() {
        let (plugin, image, mut fenced) = ready();
        let entries = device_image(null_mut()..null_mut(), &ENTRIES);
        for size in (0..image.len()).rev() {
            let mut device = device_image(fenced.put(&image[..size]), &[]);
            (device.entries_begin, device.entries_end) = (entries.entries_begin, entries.entries_end);
            plugin.is_valid_binary(&device);
            assert!(plugin.load_binary(0, &device).is_null(), "{size} of {} bytes", image.len());
        }
        let device = device_image(fenced.put(&image), &ENTRIES);
        assert_eq!(plugin.is_valid_binary(&device), 1);
        assert!(!plugin.load_binary(0, &device).is_null());
        end();
    }
    child(NAME, &[]).clean();
}
