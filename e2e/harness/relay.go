package harness

import "time"

// Relay starts a process of the command relay, which hands rows of outbox tables over to the API at base. It
// waits until the process is ready. The sources are in l.Env.
func (tr *Trial) Relay(base string, l Launch) *Process {
	tr.Helper()
	l.On, l.Times = tr.Backend, tr.Times
	args := append([]string{"relay", "--server", base, "--key", AdminKey, "--log-format", "json"}, l.Args...)
	p := l.start(tr.T, args)
	p.Client = NewClient(base)
	tr.Mu.Lock()
	tr.relays = append(tr.relays, p)
	tr.Mu.Unlock()
	if err := p.AwaitReady(StartTime); err != nil && !(l.MayDie && p.Ended()) {
		tr.Fatalf("start a relay: %v\n%s", err, p.LogTail(4000))
	}
	return p
}

// AwaitFailpoint waits until a process that has no claims has killed itself at its failpoint.
func (tr *Trial) AwaitFailpoint(p *Process, limit time.Duration) {
	tr.Helper()
	select {
	case <-p.Done:
	case <-time.After(limit):
		tr.Fatalf("the failpoint %s was not passed in %s\n%s", p.failpoint, limit, p.LogTail(3000))
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != -1 {
		tr.Fatalf("at %s it ended with code %d and not by a signal\n%s", p.failpoint, code, p.LogTail(3000))
	}
}
