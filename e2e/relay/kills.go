package relay

import (
	"fmt"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// killRows is the number of orders of a trial that kills a relay.
const killRows = 330

// killedBeforeRead kills a relay between two polls, with rows that it has not read.
func killedBeforeRead(tr *trial) {
	o := tr.src
	o.settings["poll"] = "30s"
	p := tr.relay("")
	o.held(p, resumed)
	tr.Eventually(resumed, "the relay has scanned the empty table", func() error {
		lag, err := p.Metric("dispatcher_relay_lag_seconds")
		if err == nil && lag != 0 {
			err = fmt.Errorf("its lag is %v s", lag)
		}
		return err
	})
	o.fill(0, killRows)
	tr.kill(p)
	if n := o.waiting(); n == 0 {
		tr.Errorf("no row waits, so the trial proves nothing")
	}
	o.settings["poll"] = pollEvery.String()
	tr.resumes()
	if tr.result.replayed > 0 {
		tr.Errorf("%d rows were replayed, and none was read before the kill", tr.result.replayed)
	}
}

// relayKilledAt kills the relay at a failpoint, and starts another one.
func relayKilledAt(failpoint string) func(*trial) {
	return func(tr *trial) {
		tr.src.fill(0, killRows)
		tr.awaitDeath(tr.relay(failpoint))
		tr.resumes()
	}
}

// dispatcherKilledAt kills the dispatcher while it accepts rows. Over HTTP the relay lives on.
func dispatcherKilledAt(failpoint string) func(*trial) {
	return func(tr *trial) {
		tr.src.fill(0, killRows)
		p := tr.server(failpoint)
		if tr.mode == overHTTP {
			tr.relayTo("http://"+tr.listen, "")
		}
		tr.AwaitDeath(p, time.Minute, 0)
		tr.server("")
		tr.healed()
	}
}

// resumes starts another relay, which must take over soon, and judges the trial.
func (tr *trial) resumes() {
	tr.Helper()
	tr.MarkFault()
	tr.relay("")
	tr.healed()
}

// healed judges a trial in which at most one page is replayed.
func (tr *trial) healed() {
	tr.Helper()
	tr.allowed.Heal = resumedBusy
	tr.conclude(resumedBusy)
	if tr.result.replayed > page {
		tr.Errorf("%d rows were replayed, more than a page of %d", tr.result.replayed, page)
	}
}

// killedInRefuse kills the relay between the copy of refused rows and their removal.
func killedInRefuse(tr *trial) {
	const bad = 30
	for i := range bad {
		tr.src.bare(row{id: fmt.Sprint("bad-", i), request: `{"url":`})
	}
	tr.src.fill(0, killRows)
	tr.awaitDeath(tr.relay("relay_in_refuse"))
	tr.resumes()
	if n := tr.src.refused("not_json"); n != bad {
		tr.Errorf("%d rows are in the refused table, want %d", n, bad)
	}
}

// terminated ends one of two relays under load. It finishes its page, and the other takes over at once.
func terminated(tr *trial) {
	o := tr.src
	first := tr.relay("")
	o.held(first, resumed)
	second := tr.relay("")
	l := o.load(0, 100)
	tr.AtLeast(time.Minute, "the load arrives", 100, tr.Receiver.Count)
	began := time.Now()
	first.Exit(time.Minute)
	tr.MarkFault()
	o.held(second, resumed)
	took := time.Since(began)
	orders := tr.Receiver.Count() + 100
	tr.AtLeast(time.Minute, "the load arrives again", orders, tr.Receiver.Count)
	l.end()
	tr.healed()
	tr.Remark("SIGTERM under load: the other relay took over after %s", took)
	if took > takeover {
		tr.Errorf("the other relay took over after %s, at most %s is allowed", took, takeover)
	}
	if tr.result.replayed > 0 {
		tr.Errorf("%d rows were replayed: the first relay did not finish its page", tr.result.replayed)
	}
}

// takeover is the limit from SIGTERM until another relay holds the source. A lease that is not given back
// lasts longer, because it is renewed each three seconds.
const takeover = leaseTime - 3*time.Second

// stoppedFor is longer than the lease of a source.
const stoppedFor = leaseTime + 5*time.Second

// stoppedBeforeRemove stops the holder between accept and remove, for longer than its lease.
func stoppedBeforeRemove(tr *trial) {
	first, at := tr.stopped()
	tr.src.drained(resumedBusy)
	time.Sleep(time.Until(at.Add(stoppedFor))) // the fault lasts for a fixed time
	tr.goesOn(first)
	tr.healed()
}

// stopped starts a relay that stops itself, and another one.
func (tr *trial) stopped() (first *harness.Process, at time.Time) {
	tr.Helper()
	first = tr.relay("relay_before_remove:2:stop") // it must be ready before it stops
	tr.src.fill(0, killRows)
	tr.awaitStop(first)
	at = time.Now()
	tr.Cleanup(func() { first.Cmd.Process.Signal(syscall.SIGCONT) }) // it may be dead by then
	tr.relay("")
	if tr.mode == inProcess {
		tr.Take(at, 4*time.Second)
		tr.allowed.AfterTerminal = tr.Claims.Len()
	}
	return first, at
}

// goesOn lets the stopped relay continue.
func (tr *trial) goesOn(p *harness.Process) {
	tr.Helper()
	tr.Check(p.Cmd.Process.Signal(syscall.SIGCONT))
	tr.MarkFault()
}

// numbersUsedAgain is stoppedBeforeRemove, and new rows get the numbers of those that the stopped relay is
// about to remove.
func numbersUsedAgain(tr *trial) {
	o := tr.src
	first, at := tr.stopped()
	o.drained(resumedBusy)
	second := tr.relays[len(tr.relays)-1]
	second.Exit(time.Minute)
	time.Sleep(time.Until(at.Add(stoppedFor))) // the fault lasts for a fixed time
	o.restartNumbers()
	o.fill(killRows, 2*killRows)
	if least := o.count(`SELECT min(seq) FROM dispatcher_outbox`); least > page {
		tr.Fatalf("the new rows begin at %d: no number is used again", least)
	}
	tr.goesOn(first)
	tr.healed()
}

// restartNumbers empties the outbox. Its next row gets the number 1.
func (o *outbox) restartNumbers() {
	o.tr.Helper()
	if o.on == postgres {
		o.exec(`TRUNCATE dispatcher_outbox RESTART IDENTITY`)
		return
	}
	o.exec(`TRUNCATE dispatcher_outbox`)
}
