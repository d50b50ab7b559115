package schedule_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A stage runs one case of testdata/cron.txt: processes with cron functions, and the leases that they share.
// Times are relative to its start.
type stage struct {
	began     time.Time
	processes map[string]*process

	mu    sync.Mutex
	fault error // what TryLease returns; nil: it works
	asked int   // calls of TryLease
	until map[string]time.Duration
	held  map[string]string
	runs  []string
	named map[string]int // running executions of each function
}

// A process is a Cron, its log, and the function that stops it.
type process struct {
	*schedule.Cron
	log  bytes.Buffer
	stop func()
}

func (s *stage) now() time.Duration { return time.Since(s.began) }

// TryLease grants a lease unless another holder has it.
func (s *stage) TryLease(_ context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	at := time.UnixMilli(now).Sub(s.began)
	if s.fault == nil && (s.held[name] == holder || s.until[name] <= at) {
		s.held[name], s.until[name] = holder, at+ttl
	}
	return s.held[name] == holder, s.fault
}

// TestCron checks that functions run at their times, one at a time, in one process, and within their ttl.
func TestCron(t *testing.T) {
	t.Parallel()
	transcript.File(t, "testdata/cron.txt", func(t *testing.T, text string) string {
		return transcript.Cases(t, text, func(t *testing.T, _, body string) (said string) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{
					began: time.Now(), processes: make(map[string]*process), named: make(map[string]int),
					until: make(map[string]time.Duration), held: make(map[string]string),
				}
				said = transcript.Lines(body, func(line string) string { return s.do(t, line) })
			})
			return said
		})
	})
}

// do executes one line of the transcript: it makes, starts or stops a process, adds a function, or lets time
// pass. It returns the runs and the log lines since the line before.
func (s *stage) do(t *testing.T, line string) string {
	words := strings.Split(line, " | ")
	command, name, _ := strings.Cut(words[0], " ")
	p := s.processes[name]
	switch command {
	case "process", "leased":
		p = &process{stop: func() {}}
		s.processes[name] = p
		plain := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			a.Value = a.Value.Resolve()
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			text, _, _ := strings.Cut(a.Value.String(), "\n") // without the stack
			return slog.String(a.Key, text)
		}}
		o := schedule.CronOptions{Logger: slog.New(slog.NewTextHandler(&p.log, &plain))}
		if command == "leased" {
			o.Holder, o.Lease = name, s
		}
		for _, option := range words[1:] {
			switch option {
			case "silent":
				o.Logger = nil
			case "without a name":
				o.Holder = ""
			case "an hour ahead":
				o.Now = func() int64 { return time.Now().Add(time.Hour).UnixMilli() }
			}
		}
		p.Cron = schedule.NewCron(o)
	case "add":
		ttl, err := time.ParseDuration(words[3])
		does := s.function(name, words[1], words[4:])
		err = errors.Join(err, p.Add(words[1], words[2], ttl, does))
		if err != nil {
			return err.Error()
		}
	case "start":
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		p.stop = func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run returned %v", err)
			}
		}
	case "stop":
		p.stop()
	case "leases":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fault = nil
		if name != "" {
			s.fault = errors.New(name)
		}
		return fmt.Sprintf("asked for %d times, held until %v", s.asked, s.until)
	case "pass":
		d, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
	default:
		t.Fatalf("there is no command %s", command)
	}
	synctest.Wait()
	return s.news()
}

// function returns a cron function. Its n-th run does the n-th of the listed things; later runs repeat the
// last.
func (s *stage) function(process, name string, does []string) func(context.Context) error {
	n := 0
	return func(ctx context.Context) error {
		did := does[min(n, len(does)-1)]
		n++
		s.mu.Lock()
		s.named[name]++
		run := fmt.Sprintf("%s %s at %v", process, name, s.now())
		if s.named[name] > 1 {
			run += ", while another runs"
		}
		s.runs = append(s.runs, run)
		s.mu.Unlock()
		began := time.Now()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.named[name]--
			if took := time.Since(began); took > 0 {
				s.runs = append(s.runs, fmt.Sprintf("%s %s for %v", process, name, took))
			}
		}()
		switch what, text, _ := strings.Cut(did, " "); what {
		case "panic":
			panic(text)
		case "fail":
			return errors.New(text)
		case "sleep":
			d, err := time.ParseDuration(text)
			time.Sleep(d)
			return err
		case "wait":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

// news returns the runs and the log lines since its last call. Of many it returns the first and the last
// ones.
func (s *stage) news() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.runs
	s.runs = nil
	if n := len(all); n > 24 {
		all = append(append(all[:3:3], fmt.Sprintf("%d more", n-6)), all[n-3:]...)
	}
	for name, p := range s.processes {
		for line := range strings.Lines(p.log.String()) {
			all = append(all, name+": "+strings.TrimSpace(line))
		}
		p.log.Reset()
	}
	return strings.Join(all, "\n")
}
