//! What a shared object exports, and whether LLVM's libomptarget would load it as a plugin.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use object::Endianness;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, Sym};

use crate::core::Core;
use crate::{build, paths, process};

/// The plugins that LLVM's loader tries, by name.
pub const PLUGIN_NAMES: [&str; 7] = [
    "libomptarget.rtl.ppc64.so",
    "libomptarget.rtl.x86_64.so",
    "libomptarget.rtl.cuda.so",
    "libomptarget.rtl.aarch64.so",
    "libomptarget.rtl.ve.so",
    "libomptarget.rtl.amdgpu.so",
    "libomptarget.rtl.rpc.so",
];

/// Without one of these functions LLVM's loader drops a plugin without a word.
const MANDATORY: [&str; 10] = [
    "__tgt_rtl_is_valid_binary",
    "__tgt_rtl_number_of_devices",
    "__tgt_rtl_init_device",
    "__tgt_rtl_load_binary",
    "__tgt_rtl_data_alloc",
    "__tgt_rtl_data_submit",
    "__tgt_rtl_data_retrieve",
    "__tgt_rtl_data_delete",
    "__tgt_rtl_run_target_region",
    "__tgt_rtl_run_target_team_region",
];

/// One thing that a shared object exports.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Export {
    /// A function.
    Function(Name),
    /// A variable.
    Variable(Name),
    /// A version node that the object defines.
    Node(String),
    /// The name under which programs that were linked to it ask for it.
    Soname(String),
}

/// A symbol's name with its version, if it has one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// The plain name.
    pub name: String,
    /// The version node that it belongs to.
    pub version: Option<String>,
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match self {
            Export::Function(name) => ("function", name),
            Export::Variable(name) => ("variable", name),
            Export::Node(node) => return write!(f, "node {node}"),
            Export::Soname(name) => return write!(f, "soname {name}"),
        };
        write!(f, "{kind} {}", name.name)?;
        name.version.as_ref().map_or(Ok(()), |version| write!(f, "@{version}"))
    }
}

/// Reads what an x86-64 shared object exports.
pub fn exports(file: &Path) -> Result<BTreeSet<Export>> {
    let data = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let not_ours = || format!("{} is not an x86-64 shared object", file.display());
    let elf = ElfFile64::<Endianness>::parse(&*data).with_context(not_ours)?;
    let machine = elf.elf_header().e_machine.get(elf.endian());
    let is_shared = elf.elf_header().e_type.get(elf.endian()) == elf::ET_DYN;
    ensure!(machine == elf::EM_X86_64 && is_shared, not_ours());
    parse(&elf).with_context(|| format!("cannot read the symbols of {}", file.display()))
}

fn parse(elf: &ElfFile64<'_, Endianness>) -> Result<BTreeSet<Export>> {
    let (endian, sections, data) = (elf.endian(), elf.elf_section_table(), elf.data());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut exports = BTreeSet::new();
    if let Some((mut nodes, strings)) = sections.gnu_verdef(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        while let Some((node, mut names)) = nodes.next()? {
            // The base entry is the object's own name.
            if !node.vd_flags.get(endian).contains(elf::VER_FLG_BASE)
                && let Some(name) = names.next()?
            {
                exports.insert(Export::Node(text(name.name(endian, strings)?)));
            }
        }
    }
    if let Some(name) = soname(elf)? {
        exports.insert(Export::Soname(text(name)));
    }
    let versions = sections.versions(endian, data)?;
    let symbols = elf.elf_dynamic_symbol_table();
    for (index, symbol) in symbols.enumerate() {
        let visible = matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE);
        // The linker's absolute symbols stand for the version nodes.
        if !visible || symbol.is_undefined(endian) || symbol.is_absolute(endian) {
            continue;
        }
        let version = match &versions {
            Some(table) => table.version(table.version_index(endian, index).index())?.map(|v| text(v.name())),
            None => None,
        };
        let name = Name { name: text(symbols.symbol_name(endian, symbol)?), version };
        let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        exports.insert(if is_function { Export::Function(name) } else { Export::Variable(name) });
    }
    Ok(exports)
}

fn soname<'data>(elf: &ElfFile64<'data, Endianness>) -> Result<Option<&'data [u8]>> {
    let (endian, sections, data) = (elf.endian(), elf.elf_section_table(), elf.data());
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(None) };
    let strings = sections.strings(endian, data, strings)?;
    let Some(entry) = entries.iter().find(|entry| entry.d_tag.get(endian) == elf::DT_SONAME) else { return Ok(None) };
    Ok(Some(entry.string(endian, strings)?))
}

/// Two sets of exports side by side.
pub struct Comparison {
    /// Only the other has them.
    pub missing: Vec<Export>,
    /// Only this one has them.
    pub extra: Vec<Export>,
    /// Both have them.
    pub equal: Vec<Export>,
}

/// Compares the exports of an object with those of the one that it stands in for.
pub fn compare(ours: &BTreeSet<Export>, theirs: &BTreeSet<Export>) -> Comparison {
    Comparison {
        missing: theirs.difference(ours).cloned().collect(),
        extra: ours.difference(theirs).cloned().collect(),
        equal: ours.intersection(theirs).cloned().collect(),
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for export in &self.missing {
            writeln!(f, "missing  {export}")?;
        }
        for export in &self.extra {
            writeln!(f, "extra    {export}")?;
        }
        let count = |is: fn(&Export) -> bool| self.equal.iter().filter(|export| is(export)).count();
        write!(f, "equal    {} functions", count(|export| matches!(export, Export::Function(_))))?;
        let variables = count(|export| matches!(export, Export::Variable(_)));
        if variables > 0 {
            write!(f, ", {variables} variables")?;
        }
        for export in self.equal.iter().filter(|export| matches!(export, Export::Node(_) | Export::Soname(_))) {
            write!(f, ", {export}")?;
        }
        Ok(())
    }
}

/// Why LLVM's loader would drop this plugin without a word, if it would.
pub fn dropped(plugin: &Path) -> Result<Option<String>> {
    let exports = match exports(plugin) {
        Ok(exports) => exports,
        Err(error) => return Ok(Some(format!("{error:#}"))),
    };
    let missing = missing_functions(&exports);
    if !missing.is_empty() {
        return Ok(Some(format!("missing {}", missing.join(", "))));
    }
    // dlopen fails when a library that the plugin needs is not there.
    let output = process::run(Command::new(process::tool("ldd")?).env("LC_ALL", "C.UTF-8").arg(plugin))?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let lost = output.lines().filter_map(|line| line.trim().strip_suffix(" => not found")).collect::<Vec<_>>();
    Ok((!lost.is_empty()).then(|| format!("it needs {}, not found on this machine", lost.join(", "))))
}

fn missing_functions(exports: &BTreeSet<Export>) -> Vec<&'static str> {
    let has = |wanted: &str| exports.iter().any(|export| matches!(export, Export::Function(f) if f.name == wanted));
    MANDATORY.into_iter().filter(|name| !has(name)).collect()
}

/// Prints how `file` compares with `against`, by default stock's file of that name, and for a plugin what the loader
/// makes of it. Whether all is well is returned.
pub fn report(file: &Path, against: Option<&Path>) -> Result<bool> {
    let ours = exports(file)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_plugin = name.starts_with("libomptarget.rtl.");
    let mut fine = true;
    if is_plugin {
        if !PLUGIN_NAMES.contains(&name.as_str()) {
            println!("LLVM's loader never looks for {name}: it knows {}", PLUGIN_NAMES.join(", "));
            fine = false;
        }
        match dropped(file)? {
            Some(reason) => {
                println!("LLVM's loader drops this plugin silently: {reason}");
                fine = false;
            }
            None => println!("LLVM's loader accepts this plugin"),
        }
    }
    let stock = paths::machine_llvm().join("lib").join(&name);
    let against = match against {
        Some(file) => file.to_owned(),
        None if is_plugin && stock.exists() => stock,
        None if is_plugin => {
            println!("this machine has no stock {name} to compare with");
            return Ok(fine);
        }
        None if name.starts_with("libomptarget.so") => build::ensure(Core::Stock)?.library(),
        None => bail!("{name} is neither libomptarget.so nor a plugin: name the file to compare with (--against FILE)"),
    };
    let comparison = compare(&ours, &exports(&against)?);
    println!("{} against {}\n{comparison}", file.display(), against.display());
    Ok(fine && comparison.missing.is_empty() && comparison.extra.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, version: Option<&str>) -> Export {
        Export::Function(Name { name: name.to_owned(), version: version.map(str::to_owned) })
    }

    #[test]
    fn a_function_of_another_version_is_missing_and_extra() {
        let node = Export::Node("VERS1.0".to_owned());
        let theirs = [function("a", Some("VERS1.0")), function("b", Some("VERS1.0")), node.clone()].into();
        let ours = [function("a", Some("VERS1.0")), function("b", None), node].into();
        assert_eq!(
            compare(&ours, &theirs).to_string(),
            "missing  function b@VERS1.0\nextra    function b\nequal    1 functions, node VERS1.0"
        );
    }

    #[test]
    fn the_loader_needs_each_mandatory_function() {
        let all = MANDATORY.iter().map(|name| function(name, Some("VERS1.0"))).collect::<BTreeSet<_>>();
        assert!(missing_functions(&all).is_empty());
        for name in MANDATORY {
            let rest = all.iter().filter(|export| **export != function(name, Some("VERS1.0"))).cloned().collect();
            assert_eq!(missing_functions(&rest), [name]);
        }
    }

    /// Compiles with the C compiler that Rust's linking needs anyway.
    fn shared_object(dir: &Path, name: &str, source: &str, script: Option<&str>) -> std::path::PathBuf {
        let (c, so) = (dir.join("x.c"), dir.join(name));
        fs::write(&c, source).expect("a file");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-nostdlib"]).arg(&c).arg("-o").arg(&so);
        if let Some(script) = script {
            fs::write(dir.join("map"), script).expect("a file");
            command.arg(format!("-Wl,--version-script={}", dir.join("map").display()));
        }
        process::run(&mut command).expect("a shared object");
        so
    }

    #[test]
    fn exports_are_read_with_versions() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let source = "int v = 1; void f(void) {} void g(void) {} static void h(void) {} void *p = h;";
        let script = "V1 { global: f; v; local: *; }; V2 { global: g; };";
        let so = shared_object(dir.path(), "a.so", source, Some(script));
        let read = exports(&so).expect("exports").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read, ["function f@V1", "function g@V2", "variable v@V1", "node V1", "node V2"]);

        let so = shared_object(dir.path(), "b.so", "void f(void) {}", None);
        let read = exports(&so).expect("exports").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read, ["function f"]);
    }

    #[test]
    fn a_plugin_is_dropped_for_a_missing_function_or_library() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let body = |names: &[&str]| names.iter().map(|name| format!("void {name}(void) {{}} ")).collect::<String>();
        let so = shared_object(dir.path(), "a.so", &body(&MANDATORY[1..]), None);
        let reason = dropped(&so).expect("a verdict");
        assert_eq!(reason.as_deref(), Some("missing __tgt_rtl_is_valid_binary"));

        let whole = shared_object(dir.path(), "b.so", &body(&MANDATORY), None);
        assert_eq!(dropped(&whole).expect("a verdict"), None);

        let needed = shared_object(dir.path(), "libneeded.so", "int needed;", None);
        let source = format!("extern int needed; int *p = &needed; {}", body(&MANDATORY));
        fs::write(dir.path().join("x.c"), source).expect("a file");
        let mut command = Command::new("cc");
        command.current_dir(dir.path()).args(["-shared", "-fPIC", "-nostdlib", "x.c", "-L.", "-lneeded", "-o", "c.so"]);
        process::run(&mut command).expect("a shared object");
        fs::remove_file(needed).expect("a file");
        let reason = dropped(&dir.path().join("c.so")).expect("a verdict");
        assert_eq!(reason.as_deref(), Some("it needs libneeded.so, not found on this machine"));
    }

    #[test]
    fn a_file_of_another_kind_is_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("libomptarget.rtl.cuda.so");
        fs::write(&file, "hello").expect("a file");
        let message = format!("{:#}", exports(&file).expect_err("no ELF file"));
        assert!(message.contains("is not an x86-64 shared object"), "{message}");
        assert!(dropped(&file).expect("a verdict").is_some());
    }
}
