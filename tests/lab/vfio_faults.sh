# Interrupts, idle waits, killed drivers, resets by others and bad memory, measured by mlx5-lab-probe (tests/lab/probe).
probe=mlx5-lab-probe
# The n-th function, counted from 1, in the order of the lab's list.
function_number() { functions 0x15b3 | sed -n "$1p"; }
first=$(function_number 1)
second=$(function_number 2)
unmapped=$(function_number 3)

# Waits until `grep WORDS FILE` finds something: wait_for_words WORDS FILE.
wait_for_words() {
    tries=600
    while ! grep -q "$1" "$2" 2> /dev/null; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "no word of '$1' in:"; cat "$2"; return 1; }
        usleep 50000
    done
}

# killed OPTION...: kills a driver in mid-traffic and opens the function again at once.
killed() {
    $probe traffic "$first" --endless "$@" > /tmp/killed 2>&1 &
    killed=$!
    wait_for_words running /tmp/killed
    echo "while it ran: interrupts $(grep -c vfio /proc/interrupts)"
    kill -9 $killed
    $probe traffic "$first" --rounds 100 "$@"
    again=$?
    wait $killed
    echo "the first one ended with $?"
    return $again
}

# A program that is killed while a child that it forked still has its files and memory.
killed_with_child() {
    $probe fork "$first" --child-ms 8000 > /tmp/forked 2>&1 &
    forked=$!
    wait_for_words forks /tmp/forked
    kill -9 $forked
    wait $forked
    $probe traffic "$first" --rounds 10
    echo "while the child lives: $?"
    # It runs `true` then, which has none of the files.
    tries=300
    while ls -l /proc/[0-9]*/fd 2> /dev/null | grep -q vfio && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        usleep 100000
    done
    $probe traffic "$first" --rounds 10
}

# Two programs, each with a function of its own.
two_programs() {
    $probe traffic "$first" --endless > /tmp/beside 2>&1 &
    beside=$!
    wait_for_words running /tmp/beside
    $probe traffic "$second" --rounds 100
    other=$?
    kill -0 $beside && echo "both ran"
    kill -9 $beside
    wait $beside
    return $other
}

bind_all() {
    load_vfio || return 1
    for function in $(functions 0x15b3); do
        give "$function" vfio-pci || return 1
    done
}

echo 32 > /proc/sys/vm/nr_hugepages
step "binding" bind_all
step "traces before" traces
step "events on every vector" $probe vectors "$first" --vectors 5 --rounds 20
step "an idle wait" $probe idle "$first" --seconds 3
step "two functions, one program" $probe traffic "$first" "$second" --rounds 150
step "two functions, one program, by events" $probe traffic "$first" "$second" --rounds 60 --events
step "two functions, two programs" two_programs
step "memory of the program" $probe memory "$first"
step "killed in mid-traffic" killed
step "killed asleep, 4 KiB pages" killed --events --no-huge-pages
step "traffic beside a forked child" $probe fork "$first" --child-ms 1000
step "killed beside a forked child" killed_with_child
step "nothing mapped" $probe unmapped "$unmapped"
# In the order of the lab's list; each call on the function on which its command has no answer.
number=4
for calls in $RESETS; do
    for call in $(echo "$calls" | tr , ' '); do
        step "reset: $call" $probe reset "$call" "$(function_number $number)"
    done
    number=$((number + 1))
done
step "traces after" traces
step "kernel log" dmesg -r
ask "look at the models"
