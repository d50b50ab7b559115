package dispatch_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// asOne has the engine believe that others work on its index, and gives it a name.
func asOne(o *options) {
	o.Alone = false
	o.Name, o.Version, o.Roles, o.Workers = "one", "1.2.3", []string{"api", "worker"}, 7
}

// The log is told once that a process cannot report itself, and once that it can again; its end does not wait
// for it.
func TestAProcessThatIsNotHeard(t *testing.T) {
	var text bytes.Buffer
	logged := func(o *options) { o.Logger = slog.New(slog.NewTextHandler(&text, nil)) }
	with(nil, asOne, logged).run(t, func(b *fixture) {
		time.Sleep(time.Minute + time.Second)
		for range 2 {
			b.set(fail(errDown), "ReportDispatcher")
			time.Sleep(time.Minute)
			b.set(nil, "ReportDispatcher")
			time.Sleep(30 * time.Second)
		}
		b.set(hang, "WithdrawDispatcher")
		began := time.Now()
		b.stop()
		between(b, "the end took", time.Since(began), 0, 2*time.Second)
		for _, line := range []string{"cannot report itself", "seen again"} {
			b.is("of two outages: "+line, strings.Count(text.String(), line), 2)
		}
	})
}
