"""Bad input and faults, through ``.venv/bin/invoke``: a clear error, the contract's exit code, nothing changed, nothing lost.

What each is shown by (without a file: in this folder):

======================================  ====  ==========================================================================
what goes wrong                         exit  shown by
======================================  ====  ==========================================================================
unknown key                             2     test_spec: a_wrong_value[an unknown key]; all wrongs of all files at once
wrong unit                              2     test_spec: a_wrong_value[a wrong unit]
152 where 148 was declared              4     tests/sim/test_cli_profiles.py: what_software_cannot_mend[gb300-4];
                                              tests/sim/test_cli_hosts.py: different_ends (the host is left untouched)
host key mismatch                       7     test_host: another_host_key
unreachable                             7     tests/sim/test_cli_hosts.py: alike_ends, different_ends
sudo refused                            7     test_host: a_user_who_may_not_sudo
Python missing on the host              7     test_host: a_host_without_python
apt locked                              11    tests/sim/test_apply_faults.py: apt_locked_by_another (below the command
                                              line: the role waits a minute; how a failed role ends there is shown by the
                                              next line)
disk full during apply                  11    test_apply: a_full_disk_on_one_host_and_ssh_cut_on_another
ssh cut during apply                    7     the same: both at once are told apart, exit 8
two operators at once                   12    tests/sim/test_cli_hosts.py: a_second_operator
the lock lost meanwhile                 12    test_apply: a_lock_that_was_lost
hostile value: shell, traversal,        2     test_spec: a_wrong_value[...]; each value in each key:
template, option of ssh                       tests/unit/spec/test_load.py: hostile_text
hostile value: YAML tag                 2     test_spec: a_yaml_tag_runs_nothing
a spec for another host's hardware      4     tests/sim/test_cli_profiles.py: what_is_declared_for_another_machine
interrupted: kill -9, five moments      137   test_apply: a_run_killed_at_any_moment (then as if nobody had killed it)
interrupted: SIGTERM, while it reads    143   test_apply: a_signal_while_it_reads
interrupted: SIGINT, while it applies   130   test_apply: a_signal_while_ansible_works
full record disk, from the start        1     test_apply: a_full_record_disk_keeps_hands_off
full record disk, while it applies      1     test_apply: a_record_disk_that_fills_up_meanwhile
several hosts, different ends           8     tests/sim/test_cli_hosts.py: different_ends (a table, the others done)
empty, huge, binary spec; no fleet      2     test_spec
links in a circle, folders unreadable   2     test_spec, test_surroundings: what_may_not_be_read
BOM, CRLF, names of any script          0, 2  test_surroundings: a_byte_order_mark; test_spec: names_of_any_script
no root, no sudo, no passwd entry       2, 7  test_surroundings
no HOME, LANG=C, no terminal, spaces,   0     test_apply: a_plain_user_without_home
a checkout that cannot be written
======================================  ====  ==========================================================================
"""
