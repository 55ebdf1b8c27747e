#!/bin/sh
# Runs the programs beside it on a GPU, each with LLVM's CUDA plugin and with ours: the results must be the same, and
# times are shown side by side. `omptarget gpu` makes the folder that this belongs in; it may be carried to another
# machine, where nothing but NVIDIA's driver is needed (and glibc 2.36 or newer).
#
#   run [PROGRAMS]    another folder of programs
#
# CORE=stock runs them on LLVM's core instead of the Rust core. BENCH_LARGEST is the largest copy in bytes.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
programs=${1:-$here/programs}
core=${CORE:-rust}
count=$(ls "$programs" 2>/dev/null | wc -l)
if [ "$count" -eq 0 ] || [ ! -d "$here/core/$core" ]; then
  echo "error: there are no programs in $programs, or no $core core in $here/core" >&2
  exit 1
fi

# LLVM's plugin opens libcuda.so only, and many machines have libcuda.so.1 only.
driver=
for dir in $(echo "${LD_LIBRARY_PATH:-}" | tr : ' ') \
  $(ldconfig -p 2>/dev/null | sed -n 's|.*(.*x86-64.*) => \(.*\)/libcuda\.so\.1$|\1|p') \
  $(/sbin/ldconfig -p 2>/dev/null | sed -n 's|.*(.*x86-64.*) => \(.*\)/libcuda\.so\.1$|\1|p') \
  /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/local/nvidia/lib64; do
  if [ -e "$dir/libcuda.so.1" ]; then
    driver=$dir/libcuda.so.1
    break
  fi
done
if [ -z "$driver" ]; then
  echo "skipped: this machine has no CUDA driver (libcuda.so.1)"
  echo "0 passed, 0 failed, $count skipped"
  exit 0
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/driver"
ln -s "$driver" "$work/driver/libcuda.so"
ln -s "$driver" "$work/driver/libcuda.so.1"

# on PLUGIN PROGRAM ARGUMENTS: output to $work/out, its own and the runtime's complaints to $work/err
on() {
  plugin=$1
  shift
  LD_LIBRARY_PATH=$work/driver:$here/plugin/$plugin:$here/core/$core:$here/lib:${LD_LIBRARY_PATH:-} \
    OMP_TARGET_OFFLOAD=mandatory LIBOMP_USE_HIDDEN_HELPER_TASK=0 timeout 300 "$@" >"$work/out" 2>"$work/err"
}

# devices PLUGIN: whether it has any. The runtime says so as it starts.
first=$programs/$(ls "$programs" | head -n 1)
devices() {
  LIBOMPTARGET_DEBUG=1 on "$1" "$first"
  grep -q 'Registering RTL libomptarget.rtl.cuda.so supporting' "$work/err"
}
if [ ! -e /dev/nvidiactl ] && ! devices stock && ! devices rust; then
  echo "skipped: this machine has no GPU: $driver finds none"
  echo "0 passed, 0 failed, $count skipped"
  exit 0
fi

passed=0
failed=0
for program in "$programs"/*; do
  name=$(basename "$program")
  set -- "$program"
  [ "$name" = bench ] && set -- "$program" "${BENCH_LARGEST:-1073741824}"
  verdict=passed
  for plugin in stock rust; do
    on $plugin "$@"
    status=$?
    cp "$work/out" "$work/$plugin.out"
    if [ $status -ne 0 ]; then
      verdict=FAILED
      echo "FAILED: $name with the $plugin plugin ended with $status"
      head -n 8 "$work/out" "$work/err" | sed 's/^/    /'
    fi
  done
  # The times of the bench are no results.
  if [ "$(grep -v '	' "$work/stock.out")" != "$(grep -v '	' "$work/rust.out")" ]; then
    verdict=FAILED
    echo "FAILED: $name says something else with each plugin"
  fi
  if [ $verdict = passed ]; then
    passed=$((passed + 1))
    echo "passed: $name"
  else
    failed=$((failed + 1))
  fi
  [ "$name" = bench ] && cp "$work/stock.out" "$work/stock.times" && cp "$work/rust.out" "$work/rust.times"
done

if [ -e "$work/rust.times" ]; then
  echo
  awk -F '\t' 'BEGIN { printf "%-34s %12s %12s\n", "microseconds", "stock plugin", "rust plugin" }
    NF == 2 && NR == FNR { stock[$1] = $2 }
    NF == 2 && NR != FNR { printf "%-34s %12s %12s\n", $1, stock[$1], $2 }' "$work/stock.times" "$work/rust.times"
fi
echo
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
