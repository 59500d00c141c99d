# A function leaves while a call blocks, a function for each call. The lab kills the model when it reads that it is to.
probe=mlx5-lab-probe

bind_all() {
    load_vfio || return 1
    for function in $(functions 0x15b3); do
        give "$function" vfio-pci || return 1
    done
}

# gone CALL FUNCTION: the program goes on for as long as Linux waits for the function, so its output is what counts.
gone() {
    $probe gone "$1" "$2" 2>&1 | tee "/tmp/gone-$1" &
    tenths=600
    while ! grep -q -E "^@@probe (gone done|failed)" "/tmp/gone-$1" 2> /dev/null; do
        [ $tenths -gt 0 ] || break
        tenths=$((tenths - 1))
        usleep 100000
    done
}

# The tool's own run. Linux takes the function back for a minute, in which the calls below are made.
tool() {
    mlx5 pingpong "$1" --iters 100000000 --events > /tmp/tool 2>&1
    echo "code $?" >> /tmp/tool
}

step "binding" bind_all
tool "$(functions 0x15b3 | tail -n 1)" &
tool=$!
wait_for_interrupts
# It is in the midst of its messages by then.
sleep 2
ask "kill the tool's"
number=1
for call in $CALLS; do
    gone "$call" "$(functions 0x15b3 | sed -n "${number}p")"
    step "gone: $call" cat "/tmp/gone-$call"
    number=$((number + 1))
done
wait $tool
step "gone: mlx5 pingpong" cat /tmp/tool
step "kernel log" dmesg -r
