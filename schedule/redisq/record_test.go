package redisq

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func TestRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := schedule.Item{
			ID: "01K00000000000000000000001", Lane: rapid.Int64Min(1).Draw(t, "lane"), Due: rapid.Int64Range(0, maxDue).Draw(t, "due"),
			Lock: rapid.StringMatching(`([A-Za-z0-9_-]{1,22})?`).Draw(t, "lock"), Retry: rapid.Bool().Draw(t, "retry"),
			Forced: rapid.Bool().Draw(t, "forced"),
		}
		record := encodeRecord(want)
		got, diverts, err := decodeRecord(want.ID, record)
		if err != nil || got != want || diverts != 0 {
			t.Fatalf("%+v is written %q, which reads as %+v, %d diverts, %v", want, record, got, diverts, err)
		}
		// The script puts diverts between the lane and the lock.
		head, lock, locked := strings.Cut(record, ":")
		record = head + "!17"
		if locked {
			record += ":" + lock
		}
		if got, diverts, err = decodeRecord(want.ID, record); err != nil || got != want || diverts != 17 {
			t.Fatalf("%q reads as %+v, %d diverts, %v", record, got, diverts, err)
		}
	})
}

// What waits costs a value of at most 14 bytes, for which the server takes 16, in any of a million and a half
// lanes; and in any lane that SQL will number, of at most 24.
func TestRecordsAreShort(t *testing.T) {
	t.Parallel()
	for lane, most := range map[int64]int{1: 14, 1000: 14, 100_000: 14, 1_600_000: 14, 1 << 52: 24} {
		if r := encodeRecord(schedule.Item{Lane: lane, Due: maxDue}); len(r) > most {
			t.Errorf("%q has %d bytes, want at most %d", r, len(r), most)
		}
	}
}

func TestTimesAreBounded(t *testing.T) {
	t.Parallel()
	for due, want := range map[int64]int64{-1: 0, 0: 0, 1: 1, maxDue: maxDue, maxDue + 1: maxDue, 1<<63 - 1: maxDue} {
		got, _, err := decodeRecord("id", encodeRecord(schedule.Item{Lane: 1, Due: due}))
		if err != nil || got.Due != want {
			t.Errorf("due %d became %d, %v; want %d", due, got.Due, err, want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, s := range []string{"", "000000001f1", "000000001rzz!3:lock", "000000001rzz!:lock", "000000001x1", "-00000001f1", "00000000_f1", "000000001f+1", "000000001f:Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, record string) {
		it, _, err := decodeRecord("id", record)
		if err == nil && (it.Lane <= 0 || it.Due < 0 || it.Due > maxDue) {
			t.Errorf("%q reads as %+v", record, it)
		}
	})
}
