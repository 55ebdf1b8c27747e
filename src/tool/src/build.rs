//! Builds `libomptarget.so` from LLVM's unpatched sources, with LLVM's own `device.cpp` or with the Rust core.
//!
//! A build directory holds the library, the plugins beside it, the objects that it was linked from, and a record of
//! what went into the library, so that nothing is built twice.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::core::{Core, Parts};
use crate::llvm::Tree;
use crate::{artifact, paths, plugin, process, progress, setup};

/// LLVM's sources of the library; the object of each has its name.
const SOURCES: [&str; 6] = ["api", "device", "interface", "interop", "omptarget", "rtl"];

/// As LLVM's own release build compiles them, with the debug output that a release leaves out.
pub(crate) const FLAGS: [&str; 8] =
    ["-std=c++14", "-O3", "-DNDEBUG", DEBUG_OUTPUT, "-fPIC", "-fno-exceptions", "-fno-rtti", "-fvisibility=default"];

/// Lets LLVM's sources write their debug output where it is asked for.
const DEBUG_OUTPUT: &str = "-DOMPTARGET_DEBUG";

/// What a shared library needs of the system, in the order of `rustc --print native-static-libs` for the Rust core.
const SYSTEM_LIBS: [&str; 2] = ["-ldl", "-lpthread"];
const RUST_SYSTEM_LIBS: [&str; 5] = ["-lgcc_s", "-lrt", "-lm", "-ldl", "-lpthread"];

/// The file of a build directory that says what went into the build.
const RECORD: &str = "build-record.txt";
const RECORD_HEAD: &str = "omptarget build record 1";

/// What a build can be told.
#[derive(Clone, Default, Debug)]
pub struct Options {
    /// LLVM's tree as in [`Tree::locate`].
    pub llvm: Option<String>,
    /// The build directory; by default [`default_out`].
    pub out: Option<PathBuf>,
    /// Take a tree that is not as released.
    pub allow_patched: bool,
    /// Leave LLVM's debug output out, as a release of LLVM's does.
    pub release: bool,
}

/// A built `libomptarget.so` and what it was built from.
#[derive(Clone, Debug)]
pub struct Libs {
    /// Where the library and the plugins are.
    pub dir: PathBuf,
    /// Which core is in it.
    pub core: Core,
    /// The tree that the other sources came from.
    pub tree: Tree,
    release: bool,
    headers: BTreeMap<String, Vec<PathBuf>>,
    static_library: Option<PathBuf>,
}

/// Where the build goes when nothing else is asked for: `target/omptarget/14/rust` if both parts are in Rust,
/// `.../stock` if none is.
pub fn default_out(parts: Parts) -> PathBuf {
    let Parts { core, plugin } = parts;
    let name = if core == plugin { core.name().to_owned() } else { format!("{core}-core-{plugin}-plugin") };
    paths::out_root().join("14").join(name)
}

/// Like [`build`] into the default directory, from the tree that was last used there. Cheap when nothing has changed.
pub fn ensure(parts: impl Into<Parts>) -> Result<Libs> {
    let parts = parts.into();
    build_again(parts, default_out(parts), false)
}

/// A core without LLVM's debug output, which costs time also where nobody asks for it: what is measured.
pub fn ensure_release(core: Core) -> Result<Libs> {
    build_again(core.into(), paths::out_root().join("14").join(format!("{core}-release")), true)
}

fn build_again(parts: Parts, out: PathBuf, release: bool) -> Result<Libs> {
    let mut options = Options { release, ..Options::default() };
    if let Ok(record) = fs::read_to_string(out.join(RECORD)) {
        let value = |key: &str| record.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        options.llvm = value("llvm ").filter(|dir| Path::new(dir).is_dir()).map(str::to_owned);
        options.allow_patched = options.llvm.is_some() && value("allow-patched ") == Some("true");
    }
    options.out = Some(out);
    build(parts, &options)
}

/// Builds the libraries of these parts, unless what is there was built from the same inputs.
pub fn build(parts: Parts, options: &Options) -> Result<Libs> {
    setup::check_machine()?;
    let compiler = process::tool("clang++-14")?;
    let tree = Tree::locate(options.llvm.as_deref())?;
    tree.check(options.allow_patched)?;
    let out = options.out.clone().unwrap_or_else(|| default_out(parts));
    let out = std::path::absolute(&out).with_context(|| format!("not a path: {}", out.display()))?;

    let foreign = !out.join(RECORD).is_file() && fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!foreign, "{} is not empty and was not made by this tool: give another --out", out.display());

    let _lock = paths::lock("build")?;
    let plugin = plugin::file(parts.plugin, &tree)?;
    let core = parts.core;
    let rust = match core {
        Core::Rust => Some(rust_library()?),
        Core::Stock => None,
    };
    let Options { llvm, allow_patched, release, .. } = options.clone();
    let plan = Plan { core, compiler, tree, rust, llvm, allow_patched, release };
    if !plan.is_fresh(&out) {
        // The same core beside the other plugin need not be compiled again.
        let twin = [Core::Rust, Core::Stock].map(|plugin| default_out(Parts { core, plugin }));
        match twin.iter().find(|twin| plan.is_fresh(twin)) {
            Some(twin) => plan.place(twin, &out)?,
            None => {
                let stage = paths::stage(&paths::out_root(), "building")?;
                plan.compile(stage.path())?;
                plan.link(stage.path())?;
                let libs = plan.libs(stage.path().to_owned())?;
                plan.check_face(&libs)?;
                fs::write(stage.path().join(RECORD), plan.record(&plan.inputs(&libs))?)?;
                plan.place(stage.path(), &out)?;
            }
        }
    }
    plugin::put(parts.plugin, &plugin, &out)?;
    plan.libs(out)
}

impl Libs {
    /// The library itself.
    pub fn library(&self) -> PathBuf {
        self.dir.join("libomptarget.so")
    }

    /// The files that the compiler read for one source, named without directory and ending (`"omptarget"`) or with
    /// its ending (`"omptarget.cpp"`); the source itself comes first.
    pub fn headers(&self, source: &str) -> Vec<PathBuf> {
        self.headers.get(source.trim_end_matches(".cpp")).cloned().unwrap_or_default()
    }

    /// The objects that the library was linked from, so that a test can link them to its own harness.
    pub fn object_files(&self) -> Vec<PathBuf> {
        SOURCES.iter().map(|name| self.dir.join("obj").join(name).with_extension("o")).collect()
    }

    /// How the objects were compiled, flags and include directories, so that a test's harness fits them.
    pub fn compile_args(&self) -> Vec<OsString> {
        compile_args(self.core, &self.tree, self.release)
    }

    /// What else has to be linked with the objects: the Rust library, and libraries of the system.
    pub fn link_args(&self) -> Vec<OsString> {
        let system: &[&str] = if self.static_library.is_some() { &RUST_SYSTEM_LIBS } else { &SYSTEM_LIBS };
        self.static_library.iter().map(OsString::from).chain(system.iter().map(OsString::from)).collect()
    }
}

fn compile_args(core: Core, tree: &Tree, release: bool) -> Vec<OsString> {
    let mut dirs = Vec::new();
    if core == Core::Rust {
        // Ahead of LLVM's, so that our headers are read in place of LLVM's.
        dirs.extend([paths::root().join("include/llvm14"), paths::root().join("include")]);
    }
    dirs.extend([tree.libomptarget().join("include"), tree.libomptarget().join("src")]);
    let flags = FLAGS.into_iter().filter(|flag| !(release && *flag == DEBUG_OUTPUT));
    let mut args = flags.map(OsString::from).collect::<Vec<_>>();
    for dir in dirs {
        args.extend(["-I".into(), dir.into_os_string()]);
    }
    args
}

/// The Rust core as cargo built it.
struct RustLibrary {
    archive: PathBuf,
    /// Where the bridge's generated C++ headers are.
    headers: PathBuf,
}

/// One build: what is compiled from where.
struct Plan {
    core: Core,
    compiler: PathBuf,
    tree: Tree,
    rust: Option<RustLibrary>,
    llvm: Option<String>,
    allow_patched: bool,
    release: bool,
}

impl Plan {
    fn source(&self, name: &str) -> PathBuf {
        match (self.core, name) {
            (Core::Rust, "device") => paths::root().join("cpp/llvm14/device.cpp"),
            _ => self.tree.libomptarget().join("src").join(name).with_extension("cpp"),
        }
    }

    fn compile_args(&self, name: &str) -> Vec<OsString> {
        let mut args = compile_args(self.core, &self.tree, self.release);
        if let Some(rust) = self.rust.as_ref().filter(|_| name == "device") {
            args.extend(["-I".into(), rust.headers.clone().into_os_string()]);
        }
        args.extend(["-c".into(), self.source(name).into_os_string()]);
        args
    }

    fn link_args(&self) -> Vec<OsString> {
        let mut version_script = OsString::from("-Wl,--version-script=");
        version_script.push(self.exports());
        let mut args = vec!["-shared".into(), "-Wl,-soname,libomptarget.so".into(), version_script];
        // LLVM's build finds the plugins beside the library in the same way.
        args.extend(["-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", "-Wl,--gc-sections"].map(OsString::from));
        args
    }

    fn exports(&self) -> PathBuf {
        self.tree.libomptarget().join("src/exports")
    }

    /// The machine's plugins but for CUDA's, as name and file.
    fn plugins(&self) -> Vec<(String, PathBuf)> {
        let name = |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let all = setup::machine_plugins().into_iter().map(|file| (name(&file), file));
        all.filter(|(name, _)| name != plugin::NAME).collect()
    }

    /// Puts the built files of one directory into another.
    fn place(&self, from: &Path, out: &Path) -> Result<()> {
        // Until the last file is in place the record fits no plan.
        let incomplete = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        paths::place(incomplete.path(), &out.join(RECORD))?;
        let objects = SOURCES.iter().flat_map(|name| [format!("obj/{name}.o"), format!("obj/{name}.d")]);
        let plugins = self.plugins().into_iter().map(|(name, _)| name);
        let files = ["libomptarget.so", "libomptarget.so.14"].map(str::to_owned).into_iter();
        for file in files.chain(objects).chain(plugins).chain([RECORD.to_owned()]) {
            paths::place(&from.join(&file), &out.join(&file))?;
        }
        Ok(())
    }

    fn compile(&self, stage: &Path) -> Result<()> {
        let obj = stage.join("obj");
        fs::create_dir_all(&obj).with_context(|| format!("cannot create {}", obj.display()))?;
        let text = format!("compiling libomptarget with the {} core", self.core);
        let progress = progress::steps(text, SOURCES.len());
        let queue = Mutex::new(SOURCES.iter());
        let next = || queue.lock().ok()?.next();
        let work = || -> Result<()> {
            while let Some(name) = next() {
                let file = obj.join(name);
                let mut command = Command::new(&self.compiler);
                command.args(self.compile_args(name)).arg("-o").arg(file.with_extension("o"));
                process::run(command.args(["-MD", "-MT", name, "-MF"]).arg(file.with_extension("d")))?;
                progress.inc();
            }
            Ok(())
        };
        let workers = thread::available_parallelism().map_or(1, usize::from).min(SOURCES.len());
        thread::scope(|scope| {
            let workers = (0..workers).map(|_| scope.spawn(work)).collect::<Vec<_>>();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    fn link(&self, stage: &Path) -> Result<()> {
        let _progress = progress::step("linking it");
        let libs = self.libs(stage.to_owned())?;
        let mut command = Command::new(&self.compiler);
        command.env("LC_ALL", "C.UTF-8").args(self.link_args()).args(libs.object_files()).args(libs.link_args());
        process::run(command.arg("-o").arg(libs.library()))?;
        symlink("libomptarget.so", stage.join("libomptarget.so.14"))?;
        for (name, file) in self.plugins() {
            symlink(file, stage.join(name))?;
        }
        Ok(())
    }

    /// The built files in `dir`.
    fn libs(&self, dir: PathBuf) -> Result<Libs> {
        let mut headers = BTreeMap::new();
        for name in SOURCES {
            let file = dir.join("obj").join(name).with_extension("d");
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            headers.insert(name.to_owned(), parse_dependencies(&text));
        }
        let static_library = self.rust.as_ref().map(|rust| rust.archive.clone());
        Ok(Libs { dir, core: self.core, tree: self.tree.clone(), release: self.release, headers, static_library })
    }

    /// Makes sure that no object of the Rust core knows LLVM's `device.h`: two layouts of one class in one library
    /// would go wrong at run time only.
    fn check_face(&self, libs: &Libs) -> Result<()> {
        let theirs = self.tree.libomptarget().join("include/device.h");
        let theirs = theirs.canonicalize().with_context(|| format!("cannot read {}", theirs.display()))?;
        for name in SOURCES.iter().filter(|_| self.core == Core::Rust) {
            let read = libs.headers(name).iter().any(|header| header.canonicalize().is_ok_and(|h| h == theirs));
            ensure!(!read, "{} was compiled with LLVM's device.h, not with ours", self.source(name).display());
        }
        Ok(())
    }

    /// All files that went into the build.
    fn inputs(&self, libs: &Libs) -> Vec<PathBuf> {
        let mut inputs = vec![self.compiler.clone(), self.exports()];
        inputs.extend(libs.headers.values().flatten().cloned());
        inputs.extend(libs.static_library.clone());
        inputs.sort();
        inputs.dedup();
        inputs
    }

    /// The record of a build: what was done, and each input's size and time. Equal texts mean equal builds.
    fn record(&self, inputs: &[PathBuf]) -> Result<String> {
        let mut text = format!("{RECORD_HEAD}\nallow-patched {}\n", self.allow_patched);
        if let Some(llvm) = &self.llvm {
            writeln!(text, "llvm {llvm}")?;
        }
        for name in SOURCES {
            writeln!(text, "compile {:?}", self.compile_args(name))?;
        }
        writeln!(text, "link {:?}\nplugins {:?}", self.link_args(), self.plugins())?;
        for file in inputs {
            let meta = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
            writeln!(text, "input {} {}.{} {}", meta.len(), meta.mtime(), meta.mtime_nsec(), file.display())?;
        }
        Ok(text)
    }

    /// Whether `out` holds what this plan would build.
    fn is_fresh(&self, out: &Path) -> bool {
        let Ok(recorded) = fs::read_to_string(out.join(RECORD)) else {
            return false;
        };
        let input = |line: &str| Some(PathBuf::from(line.strip_prefix("input ")?.splitn(3, ' ').nth(2)?));
        let inputs = recorded.lines().filter_map(input).collect::<Vec<_>>();
        let whole = SOURCES.iter().map(|name| format!("obj/{name}.o")).chain(["libomptarget.so".to_owned()]);
        whole.into_iter().all(|file| out.join(file).is_file()) && self.record(&inputs).is_ok_and(|now| now == recorded)
    }
}

/// Builds the Rust core with cargo.
fn rust_library() -> Result<RustLibrary> {
    const ARCHIVE: &str = "libomptarget.a";
    let built = artifact::build("omptarget", "the Rust core", &[("CXX", "clang++-14")])?;
    Ok(RustLibrary { archive: built.file(ARCHIVE)?, headers: built.script_output(ARCHIVE)?.join("cxxbridge/include") })
}

/// The prerequisites of a compiler's dependency file.
fn parse_dependencies(text: &str) -> Vec<PathBuf> {
    let rest = text.split_once(": ").map_or("", |(_, rest)| rest);
    let mut files = Vec::new();
    let mut word = String::new();
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n')) => continue,
            ('\\', Some(' ' | '#')) | ('$', Some('$')) => word.extend(chars.next()),
            (c, _) if c.is_whitespace() => {
                if !word.is_empty() {
                    files.push(PathBuf::from(std::mem::take(&mut word)));
                }
            }
            (c, _) => word.push(c),
        }
    }
    files.extend((!word.is_empty()).then(|| PathBuf::from(word)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_files_are_read_with_their_escapes() {
        let text = "omptarget: /src/omptarget.cpp \\\n  /a\\ b/device.h /c\\#/$$x.h \\\n\t/usr/include/list\n";
        let files = ["/src/omptarget.cpp", "/a b/device.h", "/c#/$x.h", "/usr/include/list"].map(PathBuf::from);
        assert_eq!(parse_dependencies(text), files);
        assert!(parse_dependencies("nothing").is_empty());
    }

    /// A plan over a made-up tree, and a build directory that was just recorded from it.
    fn recorded(dir: &Path) -> (Plan, PathBuf) {
        let src = dir.join("openmp/libomptarget/src");
        let out = dir.join("out");
        for sub in [&src, &out.join("obj")] {
            fs::create_dir_all(sub).expect("a directory");
        }
        for file in ["clang", "openmp/libomptarget/src/exports", "header.h", "out/libomptarget.so"] {
            fs::write(dir.join(file), "x").expect("a file");
        }
        let plan = Plan {
            core: Core::Stock,
            compiler: dir.join("clang"),
            tree: Tree { openmp: dir.join("openmp") },
            rust: None,
            llvm: None,
            allow_patched: false,
            release: false,
        };
        for name in SOURCES {
            fs::write(src.join(name).with_extension("cpp"), "x").expect("a source");
            let obj = out.join("obj").join(name);
            fs::write(obj.with_extension("o"), "x").expect("an object");
            let inputs = format!("{name}: {} {}/header.h\n", plan.source(name).display(), dir.display());
            fs::write(obj.with_extension("d"), inputs).expect("a dependency file");
        }
        let libs = plan.libs(out.clone()).expect("a build");
        assert_eq!(libs.headers("rtl.cpp"), [plan.source("rtl"), dir.join("header.h")]);
        fs::write(out.join(RECORD), plan.record(&plan.inputs(&libs)).expect("a record")).expect("a file");
        (plan, out)
    }

    #[test]
    fn a_build_is_fresh_until_an_input_an_output_or_a_flag_changes() {
        type Change = fn(&Path, &mut Plan);
        let changes: [(&str, Change, bool); 7] = [
            ("nothing", |_, _| {}, true),
            ("an unrelated file", |dir, _| fs::write(dir.join("other.h"), "y").expect("a file"), true),
            ("a header", |dir, _| fs::write(dir.join("header.h"), "yy").expect("a file"), false),
            ("a lost input", |dir, _| fs::remove_file(dir.join("header.h")).expect("a file"), false),
            ("a lost output", |dir, _| fs::remove_file(dir.join("out/obj/rtl.o")).expect("a file"), false),
            ("an option", |_, plan| plan.allow_patched = true, false),
            ("the debug output", |_, plan| plan.release = true, false),
        ];
        for (what, change, fresh) in changes {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let (mut plan, out) = recorded(dir.path());
            change(dir.path(), &mut plan);
            assert_eq!(plan.is_fresh(&out), fresh, "{what}");
        }
    }

    #[test]
    fn objects_of_the_rust_core_must_not_know_llvms_device_h() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (mut plan, out) = recorded(dir.path());
        let theirs = plan.tree.libomptarget().join("include/device.h");
        fs::create_dir_all(theirs.parent().expect("a parent")).expect("a directory");
        fs::write(&theirs, "x").expect("a file");
        plan.core = Core::Rust;
        let checked = |plan: &Plan| plan.check_face(&plan.libs(out.clone()).expect("a build"));
        checked(&plan).expect("nothing reads it");

        let inputs = format!("api: api.cpp {}/out/../openmp/libomptarget/include/device.h\n", dir.path().display());
        fs::write(out.join("obj/api.d"), inputs).expect("a file");
        let message = checked(&plan).expect_err("it is read").to_string();
        assert!(message.ends_with("api.cpp was compiled with LLVM's device.h, not with ours"), "{message}");
        plan.core = Core::Stock;
        checked(&plan).expect("stock reads its own");
    }
}
