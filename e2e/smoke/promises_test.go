package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// oddPayload has spaces, escapes, a key order and numbers that a decoding and encoding would change.
const oddPayload = `{ "z":1.0,   "a" :"\u00e9\/\u003c",` + "\t" +
	`"big": 12345678901234567890123 , "e":1E+2,"list":[ ],"a2":null }`

// onEach runs a trial on each of the combinations. Its processes take over the work of dead ones after
// seconds.
func onEach(t *testing.T, combinations []harness.Combination, run func(*harness.Trial)) {
	harness.OnEach(t, combinations, func(tr *harness.Trial) {
		tr.Times = harness.QuickTimes
		run(tr)
	})
}

// The main task: three attempts with tiers of one and two seconds, then success, on every combination. The
// judge checks that none is early, and that the bytes are the accepted ones.
func TestThreeAttemptsUnderTiersWithTheSameIDAndBytes(t *testing.T) {
	onEach(t, harness.AllFour, func(tr *harness.Trial) {
		const n = 20
		tr.Receiver.Lean = false
		tr.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
			if a.Nth < 3 {
				return harness.Reply{Status: 500, Body: "not yet"}
			}
			return harness.Reply{Body: "success"}
		})
		p := tr.Serve()
		for i := range n {
			tr.SubmitAndNote(harness.Submission{
				"url": tr.Receiver.URL + "/notify", "topic": "payment.succeeded",
				"ref": fmt.Sprint("order-", i), "lane": "shop",
				"payload": json.RawMessage(oddPayload),
				"policy":  harness.Submission{"tiers": []string{"1s", "2s"}},
				"success": "body-success",
			})
		}
		v := tr.End(30*time.Second, judge.Bounds{})
		if v.Sends != 3*n {
			tr.Errorf("%d sends of %d callbacks, want three each", v.Sends, n)
		}
		var late []time.Duration
		for cb, err := range p.Callbacks(client.Filter{}).All(tr.Context()) {
			tr.Check(err)
			attempts, err := p.AttemptsOf(cb.ID)
			tr.Check(err)
			var classes []string
			for i, a := range attempts {
				classes = append(classes, string(a.Class))
				late = append(late, time.Duration(a.LatenessMs*float64(time.Millisecond)))
				if a.Number != i+1 || !a.Charged || a.Trigger != "schedule" {
					tr.Errorf("%s: attempt %d is %+v", cb.ID, i+1, a)
				}
			}
			if want := []string{"http_5xx", "http_5xx", "ok"}; !slices.Equal(classes, want) {
				tr.Errorf("%s: classes %q, want %q", cb.ID, classes, want)
			}
		}
		// Lateness depends on the machine: half of the attempts can wait for one slow fsync. A lost retry
		// that only the sweep finds is later than five seconds.
		if judge.Quantile(late, 0.25) > 250*time.Millisecond || v.Lateness.Most > 5*time.Second {
			tr.Errorf("the lower quartile of the lateness is %s; all: %s", judge.Quantile(late, 0.25),
				v.Lateness)
		}
		secret, err := p.Secret(tr.Context(), client.SecretQuery{Lane: "shop"})
		tr.Check(err)
		verifier, err := standardwebhooks.NewWebhook(secret.Secret)
		tr.Check(err)
		for _, a := range tr.Receiver.All() {
			if err := verifier.Verify(a.Body, a.Header); err != nil ||
				a.Header.Get("Content-Type") != "application/json" ||
				!strings.HasPrefix(a.Header.Get("User-Agent"), "dispatcher/") || a.Number != a.Nth {
				tr.Errorf("%s, arrival %d: signature %v, headers %v", a.ID, a.Nth, err, a.Header)
			}
		}
	})
}

// Every address for sends is checked when it is given: case 29 of the security list. A test send uses the
// endpoint's address.
func TestInternalAddressesAreRefusedWhereverTheyAreGiven(t *testing.T) {
	p := harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)})
	callback := "/v1/callbacks/" + p.Create("/v1/callbacks",
		harness.Submission{"url": "http://127.0.0.1:9/", "payload": 1, "delay": "1h"})
	for _, line := range harness.Lines(t, "testdata/internal.txt") {
		words := strings.SplitN(strings.Replace(line, "CALLBACK", callback, 1), " ", 4)
		method, path, field, body := words[0], words[1], words[2], words[3]
		_, err := p.Call(t.Context(), method, path, json.RawMessage(body), nil)
		refusal := harness.Refusal(err)
		if refusal == nil || refusal.Status != 422 ||
			!slices.ContainsFunc(refusal.Errors, func(e client.FieldError) bool {
				return strings.HasPrefix(e.Field, field) &&
					strings.Contains(e.Message, "is not a public address")
			}) {
			t.Errorf("%s %s: %v, want an error of %s", method, path, err, field)
		}
	}
}

// A dispatcher that is killed under load loses nothing. It sends again only the attempts that were in flight.
func TestKilledUnderLoad(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		// One process runs at a time and commits its results before it claims again, so a stall costs it no
		// claim.
		faultUnderLoad(tr, func() {
			tr.Kill(tr.AnyProcess(), 0)
			tr.Serve()
		})
	})
}

// Redis is emptied under load. The index is rebuilt without a restart. Nothing is lost or sent twice, because
// the rebuild may adopt the attempts in flight.
func TestRedisIsEmptiedUnderLoad(t *testing.T) {
	onEach(t, []harness.Combination{harness.PostgresRedis}, func(tr *harness.Trial) {
		faultUnderLoad(tr, func() {
			tr.Flush()
			tr.MarkFault()
		})
	})
}

// faultUnderLoad runs a fault under load, after a hundred callbacks and before another hundred.
func faultUnderLoad(tr *harness.Trial, strike func()) {
	tr.Serve()
	load := tr.Load(40, tr.Mixed)
	more := func() { tr.AtLeast(time.Minute, "the load is accepted", tr.Count()+100, tr.Count) }
	more()
	strike()
	more()
	load.Finish()
	tr.Conclude(2*time.Minute, 2*time.Minute)
}

// A thousand callbacks with one lock key never overlap, follow each other closely, and block no worker.
func TestOneLockKeyNeverOverlapsAndDivertsUncharged(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		const n = 1000
		tr.Receiver.Answer(harness.Always(harness.Reply{After: time.Millisecond}))
		p := tr.Serve("--workers", "64")
		tr.AcceptMany(n, func(i int) harness.Submission {
			s := tr.Numbered("locked")(i)
			// Many lanes, so that no lane serialises the callbacks.
			s["lock_key"], s["lane"] = "order-7", fmt.Sprint("merchant-", i%20)
			return s
		})
		// A worker that waited for the lock could not send the others.
		for i := range 20 {
			id := tr.SubmitAndNote(tr.Numbered("free")(i))
			tr.AtLeast(10*time.Second, "a callback without a lock is sent", 1, func() int {
				return tr.Receiver.Times(id)
			})
		}
		tr.End(3*time.Minute, judge.Bounds{})
		locked := slices.DeleteFunc(tr.Receiver.All(), func(a harness.Arrival) bool {
			return a.Kind() == "free"
		})
		slices.SortFunc(locked, func(a, b harness.Arrival) int { return a.At.Compare(b.At) })
		var gaps []time.Duration
		for i := 1; i < len(locked); i++ {
			gaps = append(gaps, locked[i].At.Sub(locked[i-1].End))
		}
		rows, err := p.ListAll(client.Filter{})
		tr.Check(err)
		diverts := 0
		for _, row := range rows {
			diverts += row.DivertCount
			if row.AttemptCount != 1 {
				tr.Errorf("%s has %d charged attempts, want 1: a divert is not charged", row.Ref,
					row.AttemptCount)
			}
		}
		between := judge.QuantilesOf(gaps)
		tr.Logf("%s: %d under one lock: gaps %s (goal of p50: 5 ms); %d diverts", tr.Backend.Name, n, between,
			diverts)
		// A waiter that gets no wake-up waits for a second or more.
		if diverts == 0 || between.P50 > 500*time.Millisecond {
			tr.Errorf("%d diverts, and the median gap is %s", diverts, between.P50)
		}
	})
}

func TestMain(m *testing.M) { harness.Main(m) }

// TestDemoEndsWithZero runs the demo, whose exit code is 0 if all results are as expected.
func TestDemoEndsWithZero(t *testing.T) {
	got := harness.Command(t, 4*time.Minute, nil, "demo", "--exit")
	if got.Code != 0 || got.Stderr != "" {
		t.Fatalf("exit code %d\n%s\n%s", got.Code, got.Stdout, got.Stderr)
	}
	for _, want := range []string{
		`attempt 3  200 {"status": "SUCCESS"}`, "(result)  attempt 1  200 success",
		"32 accepted, including the poll and its result\n= 31 succeeded + 1 dead + 0 canceled + 0 open;\n",
		"44 requests at the shop and 3 at the bank", "verified 44 of 44 signatures",
	} {
		if !strings.Contains(got.Stdout, want) {
			t.Errorf("does not print %q:\n%s", want, got.Stdout)
		}
	}
	for line := range strings.Lines(got.Stdout) {
		if utf8.RuneCountInString(strings.TrimSpace(line)) > 80 {
			t.Errorf("a line is longer than 80 columns: %s", line)
		}
	}
}

// The times of a test build must have known names, and at most the usual values.
func TestTimesOfATestBuildAreChecked(t *testing.T) {
	for times, want := range map[string]string{
		"lease=5s,lese=3s": `"lese=3s": the name must be lease, margin, sweep, slack or leader`,
		"lease=31s":        `"lease=31s" must be 1s to 30s in whole seconds`,
	} {
		env := append([]string{"DISPATCHER_FAILPOINT_TIMES=" + times}, harness.Keys...)
		got := harness.Command(t, time.Minute, env,
			"serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--data-dir", t.TempDir())
		if got.Code != 1 || !strings.Contains(got.Stderr, "DISPATCHER_FAILPOINT_TIMES: "+want) {
			t.Errorf("%s: exit code %d, want 1 and %s:\n%s", times, got.Code, want, got.Stderr)
		}
	}
}

// The lines of testdata/first-hour.txt run in order.
func TestKeysAndEndpointsFromTheShell(t *testing.T) {
	s := &shell{T: t, p: harness.Serve(t, harness.Launch{On: harness.NewBackend(t, harness.SQLiteEmbedded)}),
		names: map[string]string{"admin": harness.AdminKey}}
	for _, name := range []string{"one", "two"} {
		s.names[name] = "127.0.0.1:" + testserver.FreePort(t)
	}
	for _, line := range harness.Lines(t, "testdata/first-hour.txt") {
		s.do(line)
	}
}

// A shell runs the lines of a script.
type shell struct {
	*testing.T
	p       *harness.Process
	names   map[string]string
	printed string // the output file of the receiver
}

func (s *shell) do(line string) {
	command, name, _ := strings.Cut(os.Expand(line, func(name string) string { return s.names[name] }), " > ")
	head, args, _ := strings.Cut(command, "| ")
	verb, rest, _ := strings.Cut(head, " ")
	switch verb {
	case "listen":
		s.listen(strings.TrimSpace(rest), strings.Fields(args))
	case "sent":
		harness.Await(s, s.p.Client, 30*time.Second)
	case "printed":
		number, want, _ := strings.Cut(rest, " ")
		text, err := os.ReadFile(s.printed)
		if n := strings.Count(string(text), want); fmt.Sprint(n) != number {
			s.Errorf("%s: listen printed it %d times, %v:\n%s", line, n, err, text)
		}
	case "until":
		harness.Eventually(s, 30*time.Second, line, func() error { return s.run(rest, args, name) })
	default:
		if err := s.run(head, args, name); err != nil {
			s.Fatalf("%s: %v", line, err)
		}
	}
}

// run runs one command. head has the name of the key, the exit code and the text.
func (s *shell) run(head, args, name string) error {
	who, rest, _ := strings.Cut(head, " ")
	code, says, _ := strings.Cut(strings.TrimSuffix(rest, " "), " ")
	got := harness.Command(s, 2*time.Minute,
		[]string{"DISPATCHER_SERVER=" + s.p.Base, "DISPATCHER_KEY=" + s.names[who]}, strings.Fields(args)...)
	if fmt.Sprint(got.Code) != code || !strings.Contains(got.Stdout+got.Stderr, says) {
		return fmt.Errorf("exit code %d\n%s%s", got.Code, got.Stdout, got.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(got.Stdout), "\n")
	s.names[name], _, _ = strings.Cut(strings.TrimSpace(lines[len(lines)-1]), " ")
	return nil
}

// listen starts the receiver of the program.
func (s *shell) listen(address string, args []string) {
	s.printed = filepath.Join(s.TempDir(), "listen.out")
	out, err := os.Create(s.printed)
	harness.Check(s, err)
	cmd := harness.Prepared(s, exec.Command(harness.Binary(s),
		append([]string{"listen", "--addr", address}, args...)...))
	cmd.Stdout, cmd.Stderr = out, out
	harness.Check(s, errors.Join(cmd.Start(), out.Close()))
	s.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	harness.Eventually(s, 10*time.Second, "listen listens", func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// A drain is a trial with one attempt in flight when the process gets SIGTERM.
type drain struct {
	*harness.Trial
	p       *harness.Process
	id      string
	release func() // lets the receiver respond
}

// draining starts a process and one attempt. The receiver responds to its first request only after release.
func draining(tr *harness.Trial, args ...string) drain {
	tr.Helper()
	gate := make(chan struct{})
	d := drain{Trial: tr, release: sync.OnceFunc(func() { close(gate) })}
	d.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			<-gate
		}
		return harness.Reply{}
	})
	tr.Cleanup(d.release) // must run before the receiver's cleanup, which waits for its requests
	d.p = d.Serve(args...)
	s := d.Callback("plain", "in-flight")
	s["policy"] = harness.Tiers("60s", "1s")
	d.id = d.SubmitAndNote(s)
	d.AtLeast(time.Minute, "the attempt has begun", 1, d.Receiver.Count)
	return d
}

// awaitState waits until the callback in flight has a state.
func (d *drain) awaitState(state client.State) {
	d.Helper()
	d.Eventually(time.Minute, "the callback is "+string(state), func() error {
		got, err := d.p.Callback(d.Context(), d.id)
		if err == nil && got.State != state {
			err = fmt.Errorf("the callback is %s", got.State)
		}
		return err
	})
}

// ends waits for the end of the process and starts another one. Each callback must be sent once.
func (d *drain) ends(code int) {
	d.Helper()
	if got := d.p.ExitCode(time.Minute); got != code {
		d.Errorf("exit code %d, want %d\n%s", got, code, d.p.LogTail(2000))
	}
	d.Serve()
	d.Settle(time.Minute)
	if v := d.Verdict(judge.Bounds{}); v.Sends != v.Accepted {
		d.Errorf("%d sends of %d callbacks", v.Sends, v.Accepted)
	}
}

// After the first SIGTERM the process is not ready at once. Attempts in flight end, and new callbacks are
// accepted but not sent. A second SIGTERM ends the process at once, so that the test need not wait for the
// delay.
func TestShutdownDelayKeepsTheAPIOpen(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		d := draining(tr, "--shutdown-delay", "1h")
		d.p.Terminate()
		d.p.AwaitUnready(time.Minute)
		late := d.SubmitAndNote(d.Callback("plain", "late"))
		d.awaitState(client.Attempting)
		d.release()
		d.awaitState(client.Succeeded)
		if n := d.Receiver.Times(late); n != 0 {
			tr.Errorf("a callback accepted after SIGTERM arrived %d times before the restart", n)
		}
		d.p.Terminate()
		d.ends(1)
	})
}

// After SIGTERM and the delay the API closes, attempts in flight end, and the exit code is 0. Nothing is sent
// twice.
func TestSIGTERMLetsAttemptsInFlightEnd(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		d := draining(tr, "--shutdown-delay", "100ms", "--drain-timeout", "1h")
		d.p.Terminate()
		d.Eventually(time.Minute, "the API is closed", func() error {
			if _, err := d.p.Callback(tr.Context(), d.id); err == nil {
				return errors.New("the API responds")
			}
			return nil
		})
		d.release()
		d.ends(0)
	})
}

// An attempt that does not end within the drain timeout is not charged, and the next process sends the
// callback.
func TestDrainDoesNotChargeInterruptedAttempts(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		d := draining(tr, "--drain-timeout", "1s")
		d.p.Exit(time.Minute)
		d.release()
		d.p = d.Serve()
		d.awaitState(client.Succeeded)
		attempts, err := d.p.AttemptsOf(d.id)
		d.Check(err)
		if len(attempts) != 2 || attempts[0].Charged || attempts[0].Outcome != "unknown" ||
			attempts[0].Class != "interrupted" || !attempts[1].Charged {
			tr.Errorf("want an interrupted attempt of unknown outcome, not charged, and a charged one: %+v",
				attempts)
		}
	})
}

// With --hold callbacks are accepted and not sent.
func TestHoldAcceptsAndSendsNothing(t *testing.T) {
	onEach(t, []harness.Combination{harness.SQLiteEmbedded}, func(tr *harness.Trial) {
		tr.Cleanup(func() { // runs after the last process has ended
			if tr.Backend.Reconciled() == 0 {
				tr.Error("no process was reconciled")
			}
		})
		p := tr.Serve("--hold")
		tr.SubmitAndNote(tr.Callback("plain", "waiting"))
		time.Sleep(2 * time.Second) // nothing may be sent meanwhile
		p.Exit(time.Minute)
		if n := tr.Receiver.Count(); n > 0 {
			tr.Fatalf("%d requests were sent by a process with --hold", n)
		}
		tr.Serve()
		tr.End(30*time.Second, judge.Bounds{})
	})
}
