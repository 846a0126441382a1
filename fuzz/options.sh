# Functions with which `run` and `planted` build the targets and set their options.

# Builds "${targets[@]}" into $binaries. Passes its arguments on to cargo.
build() {
    local cargo=(cargo) folder=fuzz place=()
    if [ "${FUZZ_ASAN:-}" = 1 ]; then
        cargo=(cargo +nightly)
        folder=fuzz-asan
        export RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=address"
        # If a target triple is given, build scripts and macros are compiled without the sanitizer.
        place=(--target "$("${cargo[@]}" -vV | sed -n 's/^host: //p')")
    fi
    # Use a separate folder, because cargo does not detect that the wrapper compiles differently.
    local into=${CARGO_TARGET_DIR:-target}/$folder
    # Disables the engine's own assertions.
    CXXFLAGS=${CXXFLAGS:+$CXXFLAGS }-DNDEBUG RUSTC_WRAPPER=$PWD/instrument CARGO_TARGET_DIR=$into \
        "${cargo[@]}" build --locked --release "${place[@]}" "${targets[@]/#/--bin=}" "$@"
    binaries=$into/${place[1]:+${place[1]}/}release
}

# Sets $options and $stored for a target, and $fixed_runs: the number of runs that takes 3 to 5 s on a quiet core.
options() {
    options=(-timeout=10 -rss_limit_mb=2048 -seed=1)
    # The limits leave ample room for a session. Longer inputs would only be slower.
    case $1 in
        # Steps have four bytes, so shorter changes need not be tried.
        server_ops) fixed_runs=20000 options+=(-max_len=97 -entropic=0 -reduce_inputs=0) ;;
        stream) fixed_runs=1500000 options+=(-max_len=96 -entropic=0 -use_counters=0) ;;
        # A finding is played again many times before it is reported.
        external) fixed_runs=4000 options+=(-max_len=400 -timeout=120) ;;
        frames) fixed_runs=300000 options+=(-max_len=512) ;;
        pmi2_bytes) fixed_runs=50000 options+=(-max_len=2048) ;;
        messages) fixed_runs=400000 options+=(-max_len=512) ;;
        mapping) fixed_runs=250000 options+=(-max_len=512) ;;
        hydra) fixed_runs=400000 options+=(-max_len=2048) ;;
        spawn) fixed_runs=100000 options+=(-max_len=2048) ;;
        client_bytes) fixed_runs=150000 options+=(-max_len=2048) ;;
        server_bytes) fixed_runs=100000 options+=(-max_len=2048) ;;
        judge) fixed_runs=50000 options+=(-max_len=2048) ;;
        scenario) fixed_runs=15000 options+=(-max_len=2048) ;;
    esac
    if [ -f "dictionaries/$1.dict" ]; then options+=("-dict=dictionaries/$1.dict"); fi
    stored=("seeds/$1")
    if [ -d "regressions/$1" ]; then stored+=("regressions/$1"); fi
    # The suite contains many good examples.
    if [ "$1" = scenario ]; then stored+=(../scenarios); fi
}
