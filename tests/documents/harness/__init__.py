"""Runs a page of docs/: its commands and programs in their order, and compares what they print with what the page says.

The tests do that in namespaces of their own, which needs root and `unshare`; elsewhere they are skipped with one line.
What cannot be run has a mark with the reason. docs/migrate/from-redis.md runs its side of Redis where there is a
redis-server (`apt install redis-server`).

A page is Markdown with fenced blocks. What each does:

| block | |
|---|---|
| `sh` | run by the bash of its terminal, with `set -e`; a program in the background ends with `&` |
| `python` | run by the same bash, as `python3 FILE` |
| any, with `title="NAME"` | written to the file NAME in the working folder; not run |
| `text`, `console`, `json` after one that was run | what that one prints; a heading in between ends this |
| `go`, `js`, `rust` ... without a title | an error, unless marked as not run |
| any other | nothing |

HTML comments before a block say what a reader does without being told; `run` may stand anywhere.

    <!-- not run: REASON -->    the block is shown only; Python still has to compile
    <!-- terminal: 2 -->        it is typed into that terminal, where the last command may run on, and which gets a
                                Ctrl-C first if it is busy; before expected output: that terminal shows it, now or soon
    <!-- any order: REASON -->  its lines may come in any order
    <!-- fails: REASON -->      the block ends with a status other than 0
    <!-- port: 4180 -->         wait afterwards until something listens there; nsqd, nsqlookupd and nsqadmin are
                                waited for anyway
    <!-- needs: go -->          left out where this command is missing, and so is all up to the next heading
    <!-- run: COMMANDS -->      run as if it were an `sh` block; $CHECKOUT is the project's folder

`documents/run.py PAGE` runs a page; it needs nothing but Python, bash and what the page uses.
"""
