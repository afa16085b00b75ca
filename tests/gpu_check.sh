#!/usr/bin/env bash
# Proves the CUDA backend on this machine and writes one page about it: builds the kernels, compares their bytes with
# the CPU backend's, runs NVIDIA's sanitizers, times kernels and requests against the rates of the device, its link and
# torch, sends a server with each backend the same requests, and profiles. tests/gpu_check/README.md lists what each
# part proves.
#
#   tests/gpu_check.sh [--parts=build,bytes,...] [--deadline=SECONDS] [--report=FILE] [--prebuilt=FOLDER or .tar.gz]
#                      [--commit=HASH] [--candidate=cuda|generic]
#   tests/gpu_check.sh --plan[=NUMBER] [...]   prints and runs five calls of at most 560 s each, or one of them: first what is
#                      least certain. Each ends with what it proved.
#
# Needs CMake, a C++20 compiler, the CUDA toolkit (nvcc on PATH, or CUDACXX) and a GPU. Torch, compute-sanitizer, ncu,
# cuobjdump and a bundled server (tests/gpu_check/bundle; --prebuilt, or build/bundle) add their parts; without one its part is
# skipped, with a sentence. Results stay in build/gpu-check/results (and results.tgz), so that several calls with some of the parts add up
# to one report. --candidate=generic tries the script itself on a machine without a GPU, with small batches.
#
# Exit status: 0 all parts passed, 1 some failed, 2 wrong usage, 3 none failed but some were skipped.
set -uo pipefail
script=$(readlink -f "$0")
cd "$(dirname "$script")/.."

parts=build,bytes,kernels,requests,torch,races,sanitizer,ncu,server,local,tests,sass,report
deadline=0
# The calls of --plan. Times are measured where nothing else runs.
plan=(bytes,report kernels,torch,report races,sanitizer,report server,local,requests,tests,report ncu,sass,report)
call='' options=()
export REPORT=build/gpu-check/report.md PREBUILT='' COMMIT='' CANDIDATE=cuda PART=''
usage() { sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$script"; }
for argument in "$@"; do
  value=${argument#*=}
  case $argument in
    --plan) call=all ;;
    --plan=[1-5]) call=$value ;;
    --plan=* | --parts=* | --deadline=* | --part=*) ;;
    *) options+=("$argument") ;;
  esac
  case $argument in
    --plan | --plan=[1-5]) ;;
    --parts=*) parts=$value ;;
    --deadline=*) deadline=$value ;;
    --report=*) REPORT=$value ;;
    --prebuilt=*) PREBUILT=$value ;;
    --commit=*) COMMIT=$value ;;
    --candidate=*) CANDIDATE=$value ;;
    --part=*) PART=$value ;;  # how the script calls itself
    --help) usage; exit ;;
    *) echo "gpu_check: unknown argument '$argument'" >&2; usage >&2; exit 2 ;;
  esac
done

if [[ $call ]]; then
  status=0
  for number in $([[ $call == all ]] && seq ${#plan[@]} || echo "$call"); do
    parts=${plan[$number - 1]}
    if [[ ! $PREBUILT ]]; then parts=build,$parts; fi
    echo "gpu_check: call $number of ${#plan[@]}: tests/gpu_check.sh --parts=$parts --deadline=560 ${options[*]}"
    "$BASH" "$script" "--parts=$parts" --deadline=560 "${options[@]}"
    ended=$?
    # A failure is worse than a part that was left out.
    if ((status != 1 && ended)); then status=$ended; fi
  done
  exit $status
fi

build=${GPU_CHECK_BUILD:-build/gpu-check}
results=$build/results
programs=$build/gpu_check
mkdir -p "$results"
if [[ -f $PREBUILT ]]; then
  rm -rf "$build/bundle"
  tar -C "$build" -xzf "$PREBUILT" bundle || { echo "gpu_check: $PREBUILT is no archive of tests/gpu_check/bundle" >&2; exit 2; }
  PREBUILT=$build/bundle
fi
# Not a bundle's scripts: profilers and disassemblers want the programs, which need no library of it.
if [[ $PREBUILT ]]; then programs=$PREBUILT/bin; fi
python=${PYTHON:-python3}
bundle=$(readlink -m "${PREBUILT:-build/bundle}")
skipped=77 # an exit status of parts, as automake has it

# Seconds after which a part is ended.
limit() {
  case $1 in
    bytes) echo 480 ;;
    build | torch | sanitizer | server) echo 300 ;;
    kernels | ncu) echo 240 ;;
    *) echo 150 ;;
  esac
}
# Facts that a part proves when it passes.
fact() {
  case $1 in
    bytes) echo "every answer has the CPU's bytes" ;;
    kernels) echo 'times of batches on the device, against its copy bandwidth' ;;
    requests) echo "times of requests from the host's memory, against the link's rate" ;;
    torch) echo 'times of the same works in eager and compiled torch' ;;
    races) echo 'rows of several segments have no memory error and no race' ;;
    sanitizer) echo 'edges of tiles and segments have no memory error, race, use of uninitialized memory or wrong barrier' ;;
    ncu) echo 'bandwidth, occupancy and stalls of the walk kernels' ;;
    server) echo 'goldens pass over the wire, and CUDA tensors are answered like host ones' ;;
    local) echo "local:cuda has local:'s answers, in torch's stream" ;;
    tests) echo 'kernels_gpu_test passes' ;;
    sass) echo 'instructions per token in compiled code' ;;
    *) ;;
  esac
}
skip() { echo "skipped: $*"; exit $skipped; }
needs() { command -v "$1" >/dev/null || skip "no $1 on PATH"; }
# Sizes of a machine with a GPU, and of a try without one.
sized() { if [[ $CANDIDATE == cuda ]]; then echo "$1"; else echo "$2"; fi; }

part_build() {
  [[ ! $PREBUILT ]] || { echo "prebuilt programs in $PREBUILT"; return; }
  local options=(-DCOUNTERWEIGHT_CUDA=OFF -DCOUNTERWEIGHT_BUILD_TESTS=ON) architecture=90
  if [[ $CANDIDATE == cuda ]]; then
    if ! command -v "${CUDACXX:-nvcc}" >/dev/null; then
      echo "no CUDA compiler; put nvcc on PATH or name it in CUDACXX"
      return 1
    fi
    # Without a driver there is no native architecture.
    if [[ -e /dev/nvidiactl ]]; then architecture=native; fi
    options=(-DCOUNTERWEIGHT_CUDA=ON -DCOUNTERWEIGHT_BUILD_TESTS=OFF
      "-DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES:-$architecture}")
  fi
  # A machine may have one of make and ninja.
  if command -v ninja >/dev/null && [[ ! -e $build/CMakeCache.txt ]]; then options+=(-G Ninja); fi
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCOUNTERWEIGHT_BUILD_SERVER=OFF \
    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${options[@]}" >"$results/cmake.txt" 2>&1 || { cat "$results/cmake.txt"; return 1; }
  cmake --build "$build" --target gpu_check gpu_bench --parallel "$(nproc)"
}

part_bytes() {
  "$programs/gpu_check" "--candidate=$CANDIDATE" "$(sized --threads=8 --edges)"
}

# Where walks hand a row from one block to another.
part_races() {
  needs compute-sanitizer
  local tool
  for tool in memcheck racecheck; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$programs/gpu_check" \
      "--candidate=${CANDIDATE/%cuda/cuda_arrays}" --segments --sample=29 --threads=0 || return 1
    echo "$tool: clean"
  done
}

part_sanitizer() {
  needs compute-sanitizer
  local tool pids=() found=() at=0
  # memcheck sees every seventh case, the slower others every thirteenth; primes, so that each turn of cases.cc is met.
  # With each array an allocation of its own, so that its ends are seen.
  local separate=${CANDIDATE/%cuda/cuda_arrays}
  local tools=(memcheck racecheck initcheck synccheck) samples=(7 13 13 13)
  for tool in "${tools[@]}"; do
    compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$programs/gpu_check" "--candidate=$separate" --edges \
      "--sample=${samples[$at]}" --threads=2 >"$results/sanitizer_$tool.txt" 2>&1 &
    pids+=($!)
    at=$((at + 1))
  done
  for at in "${!tools[@]}"; do
    if wait "${pids[$at]}"; then
      echo "${tools[$at]}: clean; $(tail -n 1 "$results/sanitizer_${tools[$at]}.txt")"
    else
      found+=("${tools[$at]}")
      echo "${tools[$at]}: FAILED; the end of its output:"
      tail -n 15 "$results/sanitizer_${tools[$at]}.txt"
    fi
  done
  echo "${#tools[@]} tools ran; not clean: ${found[*]:-none}"
  ((${#found[@]} == 0))
}

part_kernels() {
  local size status=0
  size=(--tokens="$(sized $((1 << 26)) $((1 << 17)))" --most="$(sized $((1 << 28)) $((1 << 17)))")
  # A file is replaced when its part has ended, also early.
  "$programs/gpu_bench" copies "--candidate=$CANDIDATE" "${size[@]}" >"$results/copies.jsonl" || status=1
  "$programs/gpu_bench" kernels "--candidate=$CANDIDATE" "${size[@]}" >"$results/kernels.jsonl" || status=1
  echo "$(wc -l <"$results/kernels.jsonl") rows"
  return $status
}

part_requests() {
  "$programs/gpu_bench" requests "--candidate=$CANDIDATE" --tokens="$(sized $((1 << 26)) $((1 << 17)))" \
    >"$results/requests.jsonl" || return 1
  echo "$(wc -l <"$results/requests.jsonl") rows"
}

part_torch() {
  "$python" -c 'import torch' 2>/dev/null || skip "$python has no torch"
  "$python" tests/benchmark/gpu_torch.py --device="$(sized cuda cpu)" --tokens="$(sized $((1 << 26)) $((1 << 17)))" \
    --most="$(sized $((1 << 28)) $((1 << 17)))" --budget="$(sized 240 30)" >"$results/torch.jsonl" || return 1
  echo "$(wc -l <"$results/torch.jsonl") rows"
}

part_ncu() {
  needs ncu
  local work section sections=() status=0
  for section in SpeedOfLight MemoryWorkloadAnalysis Occupancy LaunchStats WarpStateStats SchedulerStats InstructionStats; do
    sections+=(--section "$section")
  done
  for work in token_tis "token_tis, no metrics" ppo_clip "ppo_clip, no metrics" token_tis+3_rules; do
    # Clocks stay unchanged: machines are shared.
    ncu --clock-control none --csv --page raw --print-units base "${sections[@]}" \
      --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,smsp__inst_executed.sum \
      --kernel-name regex:walk --launch-count 6 \
      "$programs/gpu_bench" profile "--candidate=$CANDIDATE" "--work=$work" --tokens="$(sized $((1 << 24)) $((1 << 17)))" >"$results/ncu_$work.csv" 2>"$results/ncu.txt" &&
      grep -q '^"ID"' "$results/ncu_$work.csv" || {
      status=1
      tail -n 5 "$results/ncu_$work.csv" "$results/ncu.txt"
      rm -f "$results/ncu_$work.csv"
    }
  done
  echo "$(find "$results" -name 'ncu_*.csv' | wc -l) works profiled"
  return $status
}

part_server() {
  local server=$bundle/counterweight-server status=0 backend test
  backend=$(sized cuda cpu)
  [[ -x $server ]] || skip "no $server; tests/gpu_check/bundle makes it, on a machine with gRPC"
  "$server" --version || return 1
  "$python" -c 'import grpc, numpy, google.protobuf' || skip "$python has no grpcio, numpy or protobuf"
  export PYTHONPATH=$PWD/client/python${PYTHONPATH:+:$PYTHONPATH}
  if [[ $backend == cuda ]]; then
    for test in 'compare_backends.py --large' compare_cuda_tensors.py; do
      # shellcheck disable=SC2086  # a script and its flags
      COUNTERWEIGHT_SERVER=$server "$python" tests/e2e/$test || status=1
    done
  fi
  # Other systems' answers, from the same backend.
  printf '#!/bin/sh\nexec "%s" "$@" --backend=%s\n' "$server" "$backend" >"$results/server"
  chmod +x "$results/server"
  if "$python" -c 'import pytest, pytest_timeout'; then
    COUNTERWEIGHT_SERVER=$(readlink -f "$results/server") "$python" -m pytest -q -p no:cacheprovider --maxfail=5 \
      tests/e2e/test_golden_over_the_wire.py || status=1
  else
    echo "goldens were not asked for: $python has no pytest with pytest-timeout"
    status=1
  fi
  if ((status)); then
    echo "some of the server's checks failed; see above"
  else
    echo "the goldens pass with --backend=$backend$(sized '; it answers as the CPU does, CUDA tensors too' '')"
  fi
  return $status
}

part_local() {
  [[ $CANDIDATE == cuda ]] || skip "compares the GPU's answers with the CPU's"
  [[ -f $programs/libcounterweight.so ]] || skip "no $programs/libcounterweight.so; tests/gpu_check/bundle takes it along"
  "$python" -c 'import torch, numpy, google.protobuf' || skip "$python has no torch, numpy or protobuf"
  PYTHONPATH=$PWD/client/python${PYTHONPATH:+:$PYTHONPATH} COUNTERWEIGHT_LIBRARY=$(readlink -f "$programs/libcounterweight.so") \
    "$python" tests/e2e/compare_local_cuda.py
}

part_tests() {
  [[ -x $programs/kernels_gpu_test ]] || skip "no $programs/kernels_gpu_test; tests/gpu_check/bundle takes it along"
  "$programs/kernels_gpu_test" --gtest_brief=1
}

part_sass() {
  [[ ${CUOBJDUMP:-} ]] || needs cuobjdump
  "$python" tests/benchmark/sass.py --object "$programs/gpu_bench" >"$results/sass.md" || return 1
  echo "$(grep -c walk "$results/sass.md") kernels"
}

part_report() {
  "$python" tests/benchmark/gpu_table.py "--results=$results" "--report=$REPORT"
}

if [[ $PART ]]; then
  "part_$PART"
  exit
fi

wanted=(${parts//,/ })
for part in "${wanted[@]}"; do
  declare -F "part_$part" >/dev/null || { echo "gpu_check: no part is called '$part'" >&2; usage >&2; exit 2; }
done

# As the server starts itself; CUDA reads it before main().
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -n 1; }
: "${COMMIT:=$(git describe --always --dirty=+ --abbrev=12 2>/dev/null || cat "$bundle/COMMIT" 2>/dev/null || echo unknown)}"
device=$(smi name)
driver=$(smi driver_version)
printf '{"date": "%s", "device": "%s", "driver": "driver %s", "commit": "commit %s"}\n' "$(date -u +%F)" \
  "${device:-no GPU}" "${driver:-none}" "$COMMIT" >"$results/about.json"
echo "gpu_check: ${device:-no GPU}, driver ${driver:-none}, commit $COMMIT"

note() { # PART VERDICT SECONDS: replaces an earlier call's note about it
  local last
  last=$(grep -v '^$' "$results/$1.log" 2>/dev/null | tail -n 1 | tr '\t|' ' /' | cut -c1-120)
  touch "$results/parts.tsv"
  grep -v "^$1	" "$results/parts.tsv" >"$results/parts.new"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$last" >>"$results/parts.new"
  mv "$results/parts.new" "$results/parts.tsv"
}

failed=() left_out=() proved=()
# The report's minute lies before the deadline.
last=$deadline
if ((deadline)) && [[ " ${wanted[*]} " == *' report '* ]]; then last=$((deadline - 60)); fi
for part in "${wanted[@]}"; do
  seconds=$(limit "$part")
  left=$((last - SECONDS))
  if ((deadline && left < seconds)); then seconds=$left; fi
  if [[ $part == report ]]; then seconds=60; fi
  echo
  echo "=== $part ($SECONDS s so far, at most $seconds s for this)"
  if ((seconds <= 0)); then
    echo "skipped: no time left" | tee "$results/$part.log"
    left_out+=("$part")
    note "$part" skipped 0
    continue
  fi
  start=$SECONDS
  timeout --kill-after=10 "$seconds" "$BASH" "$script" --part="$part" "--report=$REPORT" "--prebuilt=$PREBUILT" \
    "--candidate=$CANDIDATE" 2>&1 | tee "$results/$part.log"
  status=${PIPESTATUS[0]}
  verdict=passed
  case $status in
    0) proved+=("$part") ;;
    "$skipped") verdict=skipped; left_out+=("$part") ;;
    124 | 137) verdict='out of time'; failed+=("$part") ;;
    *) verdict=FAILED; failed+=("$part") ;;
  esac
  [[ $part == report ]] || note "$part" "$verdict" $((SECONDS - start))
  echo "--- $part: $verdict, $((SECONDS - start)) s"
done

for part in "${wanted[@]}"; do
  if [[ ! $(fact "$part") ]]; then continue; fi
  if [[ " ${proved[*]} " == *" $part "* ]]; then verdict=proved; else verdict='not proved'; fi
  echo "gpu_check: $verdict: $part: $(fact "$part")"
done | tee "$results/proved_$(IFS=_; echo "${wanted[*]}").txt"

# One file to carry back from a machine that is lent.
tar -C "$(dirname "$results")" -czf "$results.tgz" "$(basename "$results")"
echo
echo "gpu_check: $SECONDS s; failed: ${failed[*]:-none}; skipped: ${left_out[*]:-none}; report: $REPORT; all results: $results.tgz"
if ((${#failed[@]})); then exit 1; fi
if ((${#left_out[@]})); then exit 3; fi
