package smoke

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// The stop of all sending takes effect within a second in every process. A restart and an emptied Redis do
// not lift it. It ends by itself, and then every callback arrives, also those accepted meanwhile.
func TestTheStopOfAllSending(t *testing.T) {
	onEach(t, harness.BothEnds, func(tr *harness.Trial) {
		const n, long = 4000, 12 * time.Second
		tr.Receiver.Answer(func(*harness.Arrival) harness.Reply {
			return harness.Reply{After: 20 * time.Millisecond}
		})
		p := tr.ServeAll()
		tr.AcceptMany(n, tr.Numbered("plain"))
		tr.AtLeast(30*time.Second, "callbacks are sent", 50, tr.Receiver.Count)
		began := time.Now()
		stop, err := p.StopSending(tr.Context(), client.PauseRequest{
			For: client.Duration(long.String()), Change: client.Change{Reason: "a test"},
		})
		tr.Check(err)
		if !stop.Stopped || stop.Reason != "a test" {
			tr.Errorf("the stop is %+v", stop)
		}
		time.Sleep(time.Until(began.Add(time.Second))) // the time allowed for it to take effect
		stopped := tr.Receiver.Count()
		if stopped >= n {
			tr.Fatal("all callbacks had arrived before the stop")
		}
		if _, text, err := p.Readyz(); err != nil || !strings.Contains(text, `"stopped"`) {
			tr.Errorf("/readyz: %s, %v", text, err)
		}
		tr.AcceptMany(100, func(i int) harness.Submission {
			return tr.Callback("plain", fmt.Sprint("late-", i))
		})
		for _, one := range tr.Alive() {
			one.Terminate()
			one.ExitCode(time.Minute)
		}
		if tr.Shared() {
			tr.Flush()
		}
		tr.ServeAll()
		time.Sleep(time.Until(began.Add(long - time.Second/2))) // it still holds
		if now := tr.Receiver.Count(); now != stopped {
			tr.Errorf("%d arrived while sending was stopped", now-stopped)
		}
		tr.End(2*time.Minute, judge.Bounds{})
	})
}
