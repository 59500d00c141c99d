# The way of a user, from a function that no driver holds to one that none holds again: 4 KiB pages, then huge ones.
function=$(functions 0x15b3)

# Runs a command and prints the fewest huge pages that were free in the meantime.
with_huge_pages() {
    (
        while :; do
            sed -n 's/HugePages_Free: *//p' /proc/meminfo
            usleep 20000
        done
    ) > /tmp/huge &
    watcher=$!
    "$@"
    code=$?
    kill $watcher
    echo "huge pages free: $(sort -n /tmp/huge | head -n 1) at least, $(sort -n /tmp/huge | tail -n 1) at most"
    return $code
}

# pingpong_form OPTION...: a few round trips over completions of each size; ends with the number of sizes that passed.
pingpong_form() {
    passed=0
    for size in 64 128 "128 --pad"; do
        # shellcheck disable=SC2086
        if mlx5 pingpong "$function" --iters 32 --cqe-size $size "$@" > /tmp/pingpong 2>&1; then
            passed=$((passed + 1))
        else
            echo "failed: $size"
            cat /tmp/pingpong
        fi
    done
    echo "sizes passed: $passed"
}

# A slow guest may find all completions there before it would sleep: another run then, twenty at most.
by_events() {
    for run in $(seq 20); do
        mlx5 pingpong "$function" --iters 100 --events --depth 1 > /tmp/events || { cat /tmp/events; return 1; }
        ! grep -q " [1-9][0-9]* sleep" /tmp/events || break
    done
    cat /tmp/events
}

# What is there while a program runs; it is ended by a signal and gives everything back.
in_the_middle() {
    mlx5 pingpong "$function" --iters 10000000 --events > /tmp/running 2>&1 &
    pid=$!
    wait_for_interrupts
    traces
    kill -TERM $pid
    wait $pid
    code=$?
    cat /tmp/running
    return $code
}

# What is there now, against what was there before the function was first opened.
left() {
    traces > /tmp/after
    diff /tmp/before /tmp/after && echo "nothing left"
}

# Whose function it is, and what is remembered of whose it was.
owner() {
    driver "$function"
    cat "$pci/$function/driver_override"
    find /run/mlx5 -type f 2> /dev/null
}

# Whether unbinding took back all that binding did.
owner_again() {
    owner > /tmp/owner-now
    diff /tmp/owner /tmp/owner-now && echo "as before"
}

owner > /tmp/owner
step "VFIO loads" load_modules vfio_pci
step "list, not bound" mlx5 list
step "bind" mlx5 bind "$function"
[ "$IOMMU" != virtio ] || step "interrupts that are not kept apart" mlx5 pingpong "$function"
load_vfio
traces > /tmp/before
step "list, bound" mlx5 list
step "whose it is, bound" owner_again
step "info" mlx5 info "$function"
step "selftest, 4 KiB pages" mlx5 selftest "$function"
step "pingpong, 4 KiB pages" mlx5 pingpong "$function" --iters 500 --size 4096
step "pingpong by events" by_events
step "pingpong, plain" pingpong_form
ask "count plain"
step "pingpong, data-inside" pingpong_form --size 32 --inline-cqe
ask "count data-inside"
for form in $FORMS; do
    step "pingpong, $form" pingpong_form --compress "${form%=*}" --layout "${form#*=}"
    ask "count $form"
done
step "nothing left, 4 KiB pages" left
echo 64 > /proc/sys/vm/nr_hugepages
traces > /tmp/before
step "selftest, huge pages" with_huge_pages mlx5 selftest "$function"
step "pingpong, huge pages" with_huge_pages mlx5 pingpong "$function" --iters 500 --size 4096
step "in the middle, ended by a signal" in_the_middle
step "nothing left, huge pages" left
step "unbind" mlx5 unbind "$function"
step "list, given back" mlx5 list
step "whose it is, given back" owner_again
step "kernel log" dmesg -r
ask "look at the model"
