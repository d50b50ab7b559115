package harness

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A journal is the recorder's log on disk: a line when a request arrives, synced before it is answered, and a
// line when its answer was written. What it says is all that the judge learns of what arrived.
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
	f, err := os.CreateTemp(tb.TempDir(), "journal-*.log")
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

// arrived is on disk when it returns.
func (j *arrivalLog) arrived(seq int64, id string, number int, at time.Time, hash judge.Hash) {
	synced := make(chan struct{})
	j.lines <- line{fmt.Sprintf("A %d %s %d %d %s\n", seq, strings.ReplaceAll(id, " ", "_")+"|", number,
		at.UnixNano(), hex.EncodeToString(hash[:])), synced}
	<-synced
}

func (j *arrivalLog) ended(seq int64, at time.Time, answered bool) {
	j.lines <- line{fmt.Sprintf("E %d %d %t\n", seq, at.UnixNano(), answered), nil}
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
		words := strings.Fields(raw)
		if !strings.HasSuffix(raw, "\n") {
			break
		}
		bad := fmt.Errorf("journal line %q cannot be read", raw)
		switch {
		case len(words) == 6 && words[0] == "A":
			seq, err1 := strconv.ParseInt(words[1], 10, 64)
			number, err2 := strconv.Atoi(words[3])
			at, err3 := strconv.ParseInt(words[4], 10, 64)
			hash, err4 := hex.DecodeString(words[5])
			if err1 != nil || err2 != nil || err3 != nil || err4 != nil || len(hash) != len(judge.Hash{}) {
				return nil, bad
			}
			bySeq[seq] = len(arrivals)
			arrivals = append(arrivals, judge.Arrival{
				ID: strings.TrimSuffix(words[2], "|"), Number: number, At: time.Unix(0, at), Hash: judge.Hash(hash),
			})
		case len(words) == 4 && words[0] == "E":
			seq, err1 := strconv.ParseInt(words[1], 10, 64)
			at, err2 := strconv.ParseInt(words[2], 10, 64)
			i, known := bySeq[seq]
			if err1 != nil || err2 != nil || !known {
				return nil, bad
			}
			arrivals[i].End, arrivals[i].Answered = time.Unix(0, at), words[3] == "true"
		default:
			return nil, bad
		}
	}
	return arrivals, nil
}

// A sequence numbers arrivals.
type sequence struct {
	mu   sync.Mutex
	last int64
}

func (s *sequence) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	return s.last
}
