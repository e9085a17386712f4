# Ends what Longhaul started, when Longhaul is no more. Standard input is a pipe that only Longhaul holds:
#   +N   the process group N is ours     -N   it is no more     .   Longhaul ends in good order
# The end of the input is the end of Longhaul, by whatever. $1 is what the environment of all our children says; their
# limit of file locks, which nothing keeps, is a number that begins with $2 if they were supervised.
trap '' HUP INT QUIT TERM PIPE ALRM USR1 USR2
mark=$1
limit="^Max file locks  *$2[0-9]* "
groups=
clean=2
while IFS= read -r line; do
    case $line in
    +*) groups="$groups ${line#+}" ;;
    -*)
        kept=
        for group in $groups; do
            [ "$group" = "${line#-}" ] || kept="$kept $group"
        done
        groups=$kept
        ;;
    .) clean=1 ;;
    esac
done

# SIGTERM once; SIGKILL from the sixth look on, until nobody is left. One look may miss who is being born.
look=0
empty=0
while [ "$look" -lt 60 ]; do
    left=
    for group in $groups; do
        kill -s 0 -- "-$group" 2>/dev/null && left="$left -$group"
    done
    if [ -d /proc/self ]; then
        for path in $(
            grep -lF -e "$mark" /proc/[0-9]*/environ 2>/dev/null
            grep -l -e "$limit" /proc/[0-9]*/limits 2>/dev/null
        ); do
            path=${path#/proc/}
            left="$left ${path%%/*}"
        done
    fi
    if [ -z "$left" ]; then
        empty=$((empty + 1))
        [ "$empty" -lt "$clean" ] || break
    else
        empty=0
        clean=2
        if [ "$look" -eq 0 ]; then
            kill -s TERM -- $left 2>/dev/null
            kill -s CONT -- $left 2>/dev/null
        elif [ "$look" -ge 5 ]; then
            kill -s KILL -- $left 2>/dev/null
            # Who is still counted now is dead, and not buried yet.
            groups=
        fi
    fi
    look=$((look + 1))
    sleep 0.1 2>/dev/null || sleep 1 2>/dev/null
done
