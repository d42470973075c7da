#!/bin/sh
# The demo's agent: does what its prompt says in one or two words, and commits it.
set -eu
task=$ORCHESTRATE_TASK
echo "agent: attempt $ORCHESTRATE_ATTEMPT of $task on $ORCHESTRATE_BRANCH: $(cat "$ORCHESTRATE_PROMPT_FILE")"
# One line for each run, outside of the worktree: shows that nothing ran twice.
echo "$task $ORCHESTRATE_ATTEMPT" >>/ran/log
sleep "${DEMO_SECONDS:-1}"
case ${1:-write} in
fail) echo "agent: cannot do this" >&2; exit 3 ;;
fail-once) [ "$ORCHESTRATE_ATTEMPT" -gt 1 ] || { echo "agent: not today" >&2; exit 1; } ;;
leave) echo "notes on $task" >"notes-$task.md"; echo "agent: left uncommitted"; exit 0 ;;
esac
mkdir -p src
echo "$task: $(cat "$ORCHESTRATE_PROMPT_FILE")" >"src/$task.txt"
git add src
git commit -q -m "$task: done by the demo's agent"
git log --oneline -1
