package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// An arrivalLog is the recorder's log on disk: a line when a request arrives, synced before it is answered,
// and a line when its answer was written. What it says is all that the judge learns of what arrived.
type arrivalLog struct {
	file  *os.File
	lines chan line
	done  chan struct{}
	err   error // of the writer; read after done
}

// A line waits until it is on disk, if synced is not nil.
type line struct {
	text   string
	synced chan<- struct{}
}

// maxLines is how many lines may wait to be written; then requests wait.
const maxLines = 4096

func openArrivalLog(tb testing.TB) *arrivalLog {
	tb.Helper()
	f, err := os.CreateTemp(tb.TempDir(), "arrivals-*.log")
	if err != nil {
		tb.Fatal(err)
	}
	j := &arrivalLog{file: f, lines: make(chan line, maxLines), done: make(chan struct{})}
	go j.write()
	return j
}

// write takes all the lines that wait, writes them, syncs once, and tells those that wait.
func (j *arrivalLog) write() {
	defer close(j.done)
	w := bufio.NewWriterSize(j.file, 1<<20)
	for first := range j.lines {
		group := []line{first}
		for len(group) < maxLines {
			select {
			case next, ok := <-j.lines:
				if ok {
					group = append(group, next)
					continue
				}
			default:
			}
			break
		}
		sync := false
		for _, l := range group {
			if _, err := w.WriteString(l.text); err != nil && j.err == nil {
				j.err = err
			}
			sync = sync || l.synced != nil
		}
		if err := w.Flush(); err != nil && j.err == nil {
			j.err = err
		}
		if sync {
			if err := j.file.Sync(); err != nil && j.err == nil {
				j.err = err
			}
		}
		for _, l := range group {
			if l.synced != nil {
				close(l.synced)
			}
		}
	}
}

// A logged line is of an arrival, or of the end of the one with that number.
type logged struct {
	Seq int64
	Of  *judge.Arrival `json:",omitempty"` // nil: its end
	End time.Time
	// Answered is judge.Arrival's.
	Answered bool
}

func (l logged) line(synced chan<- struct{}) line {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings, numbers and times
	}
	return line{string(text) + "\n", synced}
}

// arrived is on disk when it returns.
func (j *arrivalLog) arrived(seq int64, a judge.Arrival) {
	synced := make(chan struct{})
	j.lines <- logged{Seq: seq, Of: &a}.line(synced)
	<-synced
}

func (j *arrivalLog) ended(seq int64, at time.Time, answered bool) {
	j.lines <- logged{Seq: seq, End: at, Answered: answered}.line(nil)
}

// close ends the writer. No line may follow.
func (j *arrivalLog) close() error {
	close(j.lines)
	<-j.done
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	return j.err
}

// Read returns the arrivals that the log has. It may be read while it is written: an unfinished last line is
// left out. The ends of requests are written behind their senders' backs: what is on its way to the disk is
// waited for.
func (j *arrivalLog) Read() ([]judge.Arrival, error) {
	all := make(chan struct{})
	j.lines <- line{"", all}
	<-all
	text, err := os.ReadFile(j.file.Name())
	if err != nil {
		return nil, err
	}
	var arrivals []judge.Arrival
	bySeq := map[int64]int{}
	for raw := range strings.Lines(string(text)) {
		if !strings.HasSuffix(raw, "\n") {
			break
		}
		var l logged
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			return nil, fmt.Errorf("line %q of the log: %w", raw, err)
		}
		if l.Of != nil {
			bySeq[l.Seq] = len(arrivals)
			arrivals = append(arrivals, *l.Of)
			continue
		}
		i, known := bySeq[l.Seq]
		if !known {
			return nil, fmt.Errorf("%q ends what never arrived", raw)
		}
		arrivals[i].End, arrivals[i].Answered = l.End, l.Answered
	}
	return arrivals, nil
}
