//! What two CUDA plugins ask of the driver: the emulated driver's traces of one program, compared call by call.
//!
//! Where ours is meant to differ from LLVM's there is a rule: it makes one trace what the other one should be, in the
//! one respect that its name says. `tests/DIFFERENCES.md` lists the rules, and one that nothing needs is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::Regex;
use serde_json::Value;

use crate::core::Core;

/// A driver call as the emulator writes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Call {
    thread: u64,
    name: String,
    /// Handles and addresses have names.
    args: BTreeMap<String, String>,
    result: u64,
}

impl Call {
    fn new(name: &str, args: &[(&str, &str)]) -> Call {
        let args = args.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Call { thread: 0, name: name.to_owned(), args, result: 0 }
    }

    fn read(line: &str) -> Result<Call> {
        let value: Value = serde_json::from_str(line)?;
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let args = value["args"].as_object().context("a call without arguments")?;
        Ok(Call {
            thread: value["thread"].as_u64().context("a call without a thread")?,
            name: value["call"].as_str().context("a call without a name")?.to_owned(),
            args: args.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
            result: value["result"].as_u64().context("a call without a result")?,
        })
    }

    fn arg(&self, name: &str) -> &str {
        self.args.get(name).map_or("", String::as_str)
    }

    /// Whether this is a call of `name` that ended with `result`.
    fn is(&self, name: &str, result: u64) -> bool {
        self.name == name && self.result == result
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        for (name, value) in &self.args {
            write!(f, " {name}={value}")?;
        }
        if self.result != 0 {
            write!(f, " -> {}", self.result)?;
        }
        if self.thread != 0 { write!(f, " on thread {}", self.thread) } else { Ok(()) }
    }
}

/// A trace in two parts.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Trace {
    /// While the program runs.
    body: Vec<Call>,
    /// When it is over and the plugin gives things back; empty if the program aborts.
    end: Vec<Call>,
}

const SET_CONTEXT: &str = "cuCtxSetCurrent";
const FREES: [&str; 2] = ["cuMemFree_v2", "cuMemFreeHost"];
const DESTROY_EVENT: &str = "cuEventDestroy_v2";

impl Trace {
    /// The end begins with the first stream, event or module that goes, and what stands right before that of the end's
    /// other calls.
    fn new(calls: Vec<Call>) -> Trace {
        let goes = ["cuModuleUnload", "cuStreamDestroy_v2", "cuEventDestroy", DESTROY_EVENT];
        let mut at = calls.iter().position(|call| goes.contains(&&*call.name)).unwrap_or(calls.len());
        let before = |call: &Call| call.name == SET_CONTEXT || FREES.contains(&&*call.name);
        while at < calls.len() && at > 0 && before(&calls[at - 1]) {
            at -= 1;
        }
        let mut body = calls;
        let end = body.split_off(at);
        Trace { body, end }
    }

    fn all(&self) -> impl Iterator<Item = &Call> {
        self.body.iter().chain(&self.end)
    }
}

/// The traces of one program under both plugins.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pair {
    stock: Trace,
    rust: Trace,
}

/// A difference that is meant.
pub struct Rule {
    /// What `tests/DIFFERENCES.md` calls it.
    pub name: &'static str,
    /// Takes the difference out of the traces. Returns whether there was one.
    calls: Option<fn(&mut Pair) -> bool>,
    /// Takes it out of the logs.
    logs: &'static [Edit],
}

/// A pattern in one side's log, and what stands there in its place.
struct Edit {
    side: Core,
    from: &'static str,
    to: &'static str,
}

/// All differences that are meant.
pub const RULES: [Rule; 12] = [
    Rule {
        name: "no GPU is no error",
        calls: Some(|pair| drop_text_of_no_gpu(&mut pair.stock.body)),
        logs: &[
            Edit {
                side: Core::Stock,
                from: r"(?m)^(Target CUDA RTL --> )Error returned from cuInit\n.*no CUDA-capable device is detected\n",
                to: "${1}There are no devices supporting CUDA.\n",
            },
            Edit {
                side: Core::Stock,
                from: r"(?m)^CUDA error: Error returned from cuInit\nCUDA error: no CUDA-capable device is detected \n",
                to: "",
            },
        ],
    },
    Rule {
        name: "context before an event is made",
        calls: Some(|pair| drop_context(&mut pair.rust, "cuEventCreate")),
        logs: &[],
    },
    Rule {
        name: "context before a wait",
        calls: Some(|pair| drop_context(&mut pair.rust, "cuStreamWaitEvent")),
        logs: &[],
    },
    Rule { name: "no copy of 0 bytes", calls: Some(|pair| drop_empty_copies(&mut pair.stock.body)), logs: &[] },
    Rule {
        name: "peer access once",
        calls: Some(|pair| ask_for_peers_once(&mut pair.stock.body)),
        logs: &[Edit {
            side: Core::Stock,
            from: r"(?m)^.*Error returned from cuCtxEnablePeerAccess\. src = \d+, dst = \d+\n.*peer access is already enabled ?\n",
            to: "",
        }],
    },
    Rule {
        name: "failed calls are named",
        calls: None,
        logs: &[Edit {
            side: Core::Rust,
            from: r"(?m)^CUDA error: Error returned from cuMemcpy\w+Async\n(CUDA error: )",
            to: "$1",
        }],
    },
    Rule {
        name: "newer cuEventDestroy",
        calls: Some(|pair| rename(&mut pair.stock, "cuEventDestroy", DESTROY_EVENT)),
        logs: &[Edit {
            side: Core::Stock,
            from: r" with dlsym\(cuEventDestroy\) ",
            to: " with dlsym(cuEventDestroy_v2) ",
        }],
    },
    Rule {
        name: "end: each event once",
        calls: Some(|pair| destroy_events_once(&mut pair.stock)),
        logs: &[Edit {
            side: Core::Stock,
            from: r"(?m)^.*Error returned from cuEventDestroy\n.*invalid resource handle ?\n",
            to: "",
        }],
    },
    Rule { name: "end: memory goes back", calls: Some(drop_last_frees), logs: &[] },
    Rule { name: "end: context once a device", calls: Some(drop_last_contexts), logs: &[] },
    Rule { name: "end: device by device", calls: Some(sort_by_device), logs: &[] },
    Rule { name: "end: oldest first", calls: Some(sort_by_age), logs: &[] },
];

/// Without a GPU ours does not ask what the code means.
fn drop_text_of_no_gpu(calls: &mut Vec<Call>) -> bool {
    let asks = matches!(&calls[..], [init, text] if init.is("cuInit", 100) && text.name == "cuGetErrorString");
    if asks {
        calls.pop();
    }
    asks
}

/// Removes the call that makes a context current right before each call of `before`.
fn drop_context(trace: &mut Trace, before: &str) -> bool {
    let old = trace.body.len();
    let mut kept: Vec<Call> = Vec::with_capacity(old);
    for call in trace.body.drain(..) {
        if call.name == before {
            kept.pop_if(|last| last.name == SET_CONTEXT);
        }
        kept.push(call);
    }
    trace.body = kept;
    trace.body.len() < old
}

/// Removes copies of 0 bytes with the context that is set for each, and the wait for a stream that was used for nothing
/// else since it was last waited for.
fn drop_empty_copies(calls: &mut Vec<Call>) -> bool {
    let copies = ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"];
    let old = calls.len();
    let (mut used, mut left_out) = (BTreeSet::new(), BTreeSet::new());
    let mut kept: Vec<Call> = Vec::with_capacity(old);
    for call in calls.drain(..) {
        let stream = call.arg("stream").to_owned();
        if copies.contains(&&*call.name) && call.arg("len") == "0" {
            kept.pop_if(|last| last.name == SET_CONTEXT);
            left_out.insert(stream);
        } else if call.name == "cuStreamSynchronize" {
            let needless = left_out.remove(&stream) && !used.contains(&stream);
            used.remove(&stream);
            if !needless {
                kept.push(call);
            }
        } else {
            used.insert(stream);
            kept.push(call);
        }
    }
    *calls = kept;
    calls.len() < old
}

/// What LLVM's plugin does from the second copy between two devices on (asking again, being told that it has asked, and
/// copying the slow way) becomes the copy that the first one was.
fn ask_for_peers_once(calls: &mut Vec<Call>) -> bool {
    let old = calls.len();
    let mut kept: Vec<Call> = Vec::with_capacity(old);
    for call in calls.drain(..) {
        kept.push(call);
        let [.., context, ask, enable, text, copy] = &kept[..] else { continue };
        let again = context.is(SET_CONTEXT, 0)
            && ask.is("cuDeviceCanAccessPeer", 0)
            && enable.is("cuCtxEnablePeerAccess", 704)
            && text.is("cuGetErrorString", 0)
            && copy.is("cuMemcpyDtoDAsync_v2", 0);
        if again {
            let mut direct = copy.clone();
            direct.name = "cuMemcpyPeerAsync".to_owned();
            direct.args.insert("from_context".to_owned(), context.arg("context").to_owned());
            direct.args.insert("to_context".to_owned(), enable.arg("peer").to_owned());
            kept.truncate(kept.len() - 4);
            kept.push(direct);
        }
    }
    *calls = kept;
    calls.len() < old
}

fn rename(trace: &mut Trace, from: &str, to: &str) -> bool {
    let calls = trace.body.iter_mut().chain(&mut trace.end).filter(|call| call.name == from);
    calls.map(|call| call.name = to.to_owned()).count() > 0
}

/// Events that LLVM's plugin destroys twice, and those that it does not destroy, are destroyed once.
fn destroy_events_once(trace: &mut Trace) -> bool {
    if trace.end.is_empty() {
        return false;
    }
    let old = trace.end.len();
    let mut kept: Vec<Call> = Vec::with_capacity(old);
    for call in trace.end.drain(..) {
        let complains = call.name == "cuGetErrorString" && kept.last().is_some_and(|last| last.is(DESTROY_EVENT, 400));
        if complains {
            kept.pop();
        } else {
            kept.push(call);
        }
    }
    trace.end = kept;
    let twice = trace.end.len() < old;
    let made = trace.body.iter().filter(|call| call.is("cuEventCreate", 0)).map(|call| call.arg("event"));
    let gone = |event: &&str| trace.end.iter().any(|call| call.is(DESTROY_EVENT, 0) && call.arg("event") == *event);
    let missing: Vec<Call> =
        made.filter(|event| !gone(event)).map(|event| Call::new(DESTROY_EVENT, &[("event", event)])).collect();
    // Beside the others: their order is another rule's.
    let at = trace.end.iter().rposition(|call| call.name == DESTROY_EVENT).map_or(0, |last| last + 1);
    let any = !missing.is_empty();
    trace.end.splice(at..at, missing);
    twice || any
}

/// Memory that LLVM's plugin never frees, and ours at the end.
fn drop_last_frees(pair: &mut Pair) -> bool {
    let is_free = |call: &Call| FREES.contains(&&*call.name);
    let theirs: BTreeSet<&str> =
        pair.stock.all().filter(|call| is_free(call)).map(|call| call.arg("pointer")).collect();
    let old = pair.rust.end.len();
    pair.rust.end.retain(|call| !is_free(call) || theirs.contains(call.arg("pointer")));
    pair.rust.end.len() < old
}

/// LLVM's plugin sets the context for each stream, ours once a device: neither counts.
fn drop_last_contexts(pair: &mut Pair) -> bool {
    let contexts = |trace: &Trace| trace.end.iter().filter(|call| call.name == SET_CONTEXT).count();
    let differs = contexts(&pair.stock) != contexts(&pair.rust);
    for trace in [&mut pair.stock, &mut pair.rust] {
        trace.end.retain(|call| call.name != SET_CONTEXT);
    }
    differs
}

/// LLVM's plugin gives back all modules, then all streams, all events, all contexts; ours the same for one device after
/// the other. A thing is of the device whose context was current when it was made.
fn sort_by_device(pair: &mut Pair) -> bool {
    let mut owner: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    for call in &pair.rust.body {
        match call.name.as_str() {
            "cuDevicePrimaryCtxRetain" => {
                owner.insert(call.arg("context").to_owned(), call.arg("device").to_owned());
            }
            SET_CONTEXT => current = owner.get(call.arg("context")).cloned().unwrap_or_default(),
            _ => {}
        }
        for made in ["stream", "event", "module"] {
            if !call.arg(made).is_empty() {
                owner.entry(call.arg(made).to_owned()).or_insert_with(|| current.clone());
            }
        }
    }
    let device = |call: &Call| {
        let thing = ["stream", "event", "module"].map(|kind| call.arg(kind)).into_iter().find(|name| !name.is_empty());
        thing.map_or_else(|| call.arg("device").to_owned(), |thing| owner.get(thing).cloned().unwrap_or_default())
    };
    let before = pair.stock.end.clone();
    pair.stock.end.sort_by_key(device);
    pair.stock.end != before
}

/// LLVM's plugin destroys what is in its pools as use has left them, ours in the order in which all was made. Within a
/// run of one call the order does not count.
fn sort_by_age(pair: &mut Pair) -> bool {
    let differs = pair.stock.end != pair.rust.end;
    for trace in [&mut pair.stock, &mut pair.rust] {
        for run in trace.end.chunk_by_mut(|a, b| a.name == b.name) {
            run.sort();
        }
    }
    differs && pair.stock.end == pair.rust.end
}

/// What a comparison has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compared {
    /// The calls of both as the rules leave them, one a line.
    pub texts: [String; 2],
    /// The rules that were needed.
    pub rules: BTreeSet<&'static str>,
}

/// Compares the trace of LLVM's plugin with that of ours.
pub fn compare(stock: &str, rust: &str) -> Result<Compared> {
    let trace = |text: &str| text.lines().map(Call::read).collect::<Result<Vec<_>>>().map(Trace::new);
    let mut pair = Pair { stock: trace(stock)?, rust: trace(rust)? };
    let rules =
        RULES.iter().filter(|rule| rule.calls.is_some_and(|calls| calls(&mut pair))).map(|rule| rule.name).collect();
    let text = |trace: &Trace| trace.all().map(|call| format!("{call}\n")).collect::<String>();
    Ok(Compared { texts: [text(&pair.stock), text(&pair.rust)], rules })
}

/// Whether more than one thread calls the driver in a trace: then the order of calls is chance.
pub fn has_threads(trace: &str) -> bool {
    trace.lines().any(|line| !line.contains("\"thread\":0,"))
}

/// A side's log without what is meant to differ, and the names of the rules that were needed for that.
pub fn log(side: Core, log: &str) -> (String, BTreeSet<String>) {
    static EDITS: LazyLock<Vec<(&str, &Edit, Regex)>> = LazyLock::new(|| {
        let edits = RULES.iter().flat_map(|rule| rule.logs.iter().map(|edit| (rule.name, edit)));
        let regex = |edit: &Edit| Regex::new(edit.from).expect("the pattern is a constant that the tests use");
        edits.map(|(name, edit)| (name, edit, regex(edit))).collect()
    });
    let (mut log, mut needed) = (log.to_owned(), BTreeSet::new());
    for (name, edit, from) in EDITS.iter().filter(|(_, edit, _)| edit.side == side) {
        if from.is_match(&log) {
            needed.insert(in_logs(name));
            log = from.replace_all(&log, edit.to).into_owned();
        }
    }
    (log, needed)
}

fn in_logs(rule: &str) -> String {
    format!("{rule} (log)")
}

/// The rules, and their parts for logs, that none of the comparisons needed.
pub fn unused(needed: &BTreeSet<String>) -> Vec<String> {
    let calls = RULES.iter().filter(|rule| rule.calls.is_some()).map(|rule| rule.name.to_owned());
    let logs = RULES.iter().filter(|rule| !rule.logs.is_empty()).map(|rule| in_logs(rule.name));
    calls.chain(logs).filter(|rule| !needed.contains(rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace from lines like `cuStreamCreate stream=stream0 -> 1`.
    fn trace(text: &str) -> String {
        let line = |(number, line): (usize, &str)| {
            let (call, result) = line.split_once(" -> ").unwrap_or((line, "0"));
            let mut words = call.split_whitespace();
            let name = words.next().expect("a call");
            let args = words.map(|word| word.split_once('=').expect("an argument"));
            let args = args.map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect::<Vec<_>>().join(",");
            format!("{{\"n\":{number},\"thread\":0,\"call\":\"{name}\",\"args\":{{{args}}},\"result\":{result}}}\n")
        };
        text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate().map(line).collect()
    }

    /// The rules that make two traces equal.
    fn rules(stock: &str, rust: &str) -> Vec<&'static str> {
        let compared = compare(&trace(stock), &trace(rust)).expect("two traces");
        assert_eq!(compared.texts[0], compared.texts[1]);
        compared.rules.into_iter().collect()
    }

    fn differ(stock: &str, rust: &str) {
        let [stock, rust] = compare(&trace(stock), &trace(rust)).expect("two traces").texts;
        assert_ne!(stock, rust);
    }

    #[test]
    fn equal_traces_need_no_rule() {
        assert_eq!(
            rules("cuInit flags=0\ncuDeviceGet device=0 -> 101", "cuInit flags=0\ncuDeviceGet device=0 -> 101"),
            [""; 0]
        );
    }

    #[test]
    fn arguments_results_and_order_count() {
        differ("cuInit flags=0", "cuInit flags=1");
        differ("cuInit flags=0", "cuInit flags=0 -> 1");
        differ("cuInit\ncuDeviceGetCount", "cuDeviceGetCount\ncuInit");
        differ("cuInit", "");
    }

    #[test]
    fn a_machine_without_a_gpu_is_no_error() {
        assert_eq!(rules("cuInit -> 100\ncuGetErrorString", "cuInit -> 100"), ["no GPU is no error"]);
        differ("cuInit -> 101\ncuGetErrorString", "cuInit -> 101");
        differ("cuInit -> 100", "cuInit -> 100\ncuGetErrorString");
        let error = "Error returned from cuInit\n";
        let debug = format!(
            "Target CUDA RTL --> {error}Target CUDA RTL --> CUDA error is: no CUDA-capable device is detected\n"
        );
        assert_eq!(log(Core::Stock, &debug).0, "Target CUDA RTL --> There are no devices supporting CUDA.\n");
        let quiet = format!("CUDA error: {error}CUDA error: no CUDA-capable device is detected \nx\n");
        assert_eq!(log(Core::Stock, &quiet).0, "x\n");
    }

    #[test]
    fn one_context_is_set_before_an_event_is_made_or_waited_for() {
        let stock = "cuEventCreate event=event0\ncuStreamWaitEvent event=event0";
        let rust = "cuCtxSetCurrent\ncuEventCreate event=event0\ncuCtxSetCurrent\ncuStreamWaitEvent event=event0";
        assert_eq!(rules(stock, rust), ["context before a wait", "context before an event is made"]);
        differ("cuEventRecord", "cuCtxSetCurrent\ncuEventRecord");
        differ("cuEventCreate", "cuCtxSetCurrent\ncuCtxSetCurrent\ncuEventCreate");
    }

    #[test]
    fn copies_of_0_bytes_go_with_their_context_and_wait() {
        let copy = "cuCtxSetCurrent\ncuMemcpyHtoDAsync_v2 len=0 stream=stream0\n";
        let (record, wait) = ("cuEventRecord stream=stream0\n", "cuStreamSynchronize stream=stream0\n");
        assert_eq!(rules(&[copy, wait].concat(), ""), ["no copy of 0 bytes"]);
        assert_eq!(rules(&[copy, record, wait].concat(), &[record, wait].concat()), ["no copy of 0 bytes"]);
        assert_eq!(rules(&[record, wait, copy, wait].concat(), &[record, wait].concat()), ["no copy of 0 bytes"]);
        // Ours may not make one, nor leave out another wait.
        differ("", copy);
        differ(&[record, wait, wait].concat(), &[record, wait].concat());
        differ("cuMemcpyHtoDAsync_v2 len=1 stream=stream0", "");
    }

    #[test]
    fn peers_are_asked_once() {
        let context = "cuCtxSetCurrent context=context0\n";
        let again = "cuDeviceCanAccessPeer can=1\ncuCtxEnablePeerAccess peer=context1 -> 704\ncuGetErrorString\n\
                     cuMemcpyDtoDAsync_v2 to=mem1 from=mem0 len=8 stream=stream0";
        let direct =
            "cuMemcpyPeerAsync to=mem1 to_context=context1 from=mem0 from_context=context0 len=8 stream=stream0";
        assert_eq!(rules(&[context, again].concat(), &[context, direct].concat()), ["peer access once"]);
        let other = again.replace("704", "205");
        differ(&[context, &other].concat(), &[context, direct].concat());
    }

    #[test]
    fn the_end_may_be_in_another_order_but_not_lack_anything() {
        let start = "cuDevicePrimaryCtxRetain context=context0 device=0\ncuDevicePrimaryCtxRetain context=context1 device=1\n\
                     cuCtxSetCurrent context=context0\ncuStreamCreate stream=stream0\ncuStreamCreate stream=stream1\n\
                     cuEventCreate event=event0\ncuEventCreate event=event1\ncuMemAlloc_v2 pointer=mem0\n\
                     cuCtxSetCurrent context=context1\ncuStreamCreate stream=stream2\n";
        let stock = "cuCtxSetCurrent context=context0\ncuStreamDestroy_v2 stream=stream1\n\
                     cuCtxSetCurrent context=context0\ncuStreamDestroy_v2 stream=stream0\n\
                     cuCtxSetCurrent context=context1\ncuStreamDestroy_v2 stream=stream2\n\
                     cuEventDestroy event=event0\ncuEventDestroy event=event0 -> 400\ncuGetErrorString error=400\n\
                     cuDevicePrimaryCtxRelease_v2 device=0\ncuDevicePrimaryCtxRelease_v2 device=1\n";
        let rust = "cuCtxSetCurrent context=context0\ncuMemFree_v2 pointer=mem0\n\
                    cuStreamDestroy_v2 stream=stream0\ncuStreamDestroy_v2 stream=stream1\n\
                    cuEventDestroy_v2 event=event0\ncuEventDestroy_v2 event=event1\n\
                    cuDevicePrimaryCtxRelease_v2 device=0\n\
                    cuCtxSetCurrent context=context1\ncuStreamDestroy_v2 stream=stream2\n\
                    cuDevicePrimaryCtxRelease_v2 device=1\n";
        let of = |end: &str| [start, end].concat();
        let mut expected: Vec<&str> = RULES[6..].iter().map(|rule| rule.name).collect();
        expected.sort_unstable();
        assert_eq!(rules(&of(stock), &of(rust)), expected);
        for line in rust.lines().filter(|line| !line.starts_with(SET_CONTEXT) && !line.starts_with("cuMemFree")) {
            differ(&of(stock), &of(&rust.replace(&format!("{line}\n"), "")));
            differ(&of(stock), &of(&rust.replace(line, &format!("{line}\n{line}"))));
        }
        // Memory that LLVM's plugin frees too must be freed, and its end must come.
        differ(
            &of(&stock.replacen("cuCtx", "cuMemFree_v2 pointer=mem0\ncuCtx", 1)),
            &of(&rust.replace("cuMemFree_v2 pointer=mem0\n", "")),
        );
        differ(&of(stock), start);
    }

    #[test]
    fn a_second_thread_is_seen() {
        let text = trace("cuInit");
        assert!(!has_threads(&text));
        assert!(has_threads(&format!("{text}{}", text.replace("\"thread\":0", "\"thread\":1"))));
        assert!(compare("no trace\n", "").is_err());
    }

    #[test]
    fn logs_have_rules_too() {
        let stock = "Target CUDA RTL --> Implementing cuEventDestroy with dlsym(cuEventDestroy) -> 0x1\n\
                     a\nCUDA error: Error returned from cuEventDestroy\nCUDA error: invalid resource handle \nb\n\
                     x --> Error returned from cuCtxEnablePeerAccess. src = 0, dst = 1\n\
                     x --> CUDA error is: peer access is already enabled\nc\n";
        let (stock, needed) = log(Core::Stock, stock);
        assert_eq!(
            stock,
            "Target CUDA RTL --> Implementing cuEventDestroy with dlsym(cuEventDestroy_v2) -> 0x1\na\nb\nc\n"
        );
        assert_eq!(needed.len(), 3);
        assert_eq!(log(Core::Stock, "a\n").1.len(), 0);
        // What ours says more than LLVM's is no rule for LLVM's.
        let named = "CUDA error: Error returned from cuMemcpyHtoDAsync\nCUDA error: invalid argument \n";
        assert_eq!(log(Core::Rust, named).0, "CUDA error: invalid argument \n");
        assert_eq!(log(Core::Stock, named).0, named);
        // Another error of the same call stays.
        let other = "CUDA error: Error returned from cuEventDestroy\nCUDA error: out of memory \n";
        assert_eq!(log(Core::Stock, other).0, other);
    }

    #[test]
    fn unused_rules_are_named() {
        let all: BTreeSet<String> = unused(&BTreeSet::new()).into_iter().collect();
        assert!(all.contains("no GPU is no error") && all.contains("no GPU is no error (log)"));
        assert!(!all.contains("failed calls are named") && all.contains("failed calls are named (log)"));
        assert_eq!(unused(&all), [""; 0]);
    }

    /// The document of differences has each rule, and no other.
    #[test]
    fn the_rules_are_in_the_document() {
        let text = include_str!("../../../tests/DIFFERENCES.md");
        let (_, section) = text.split_once("\n### The driver's calls, one by one\n").expect("the section");
        let section = section.split("\n## ").next().unwrap_or(section);
        let listed: Vec<&str> =
            section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(listed, RULES.map(|rule| rule.name));
    }
}
