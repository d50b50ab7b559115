package redisq

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
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

// Program and scripts read the same records: what only one of them reads would be claimed by a process that
// cannot use it.
func TestRecordsReadAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a redis-server")
	}
	t.Parallel()
	records := []string{
		"", "000000001", "000000001f", "000000001f1", "00000000Af1", "000000001f0", "000000001f01",
		"000000001fA", "000000001x1", "-00000001f1",
		"000000001f1y2p0ij32e8e7", "000000001f1y2p0ij32e8e8", "000000001fzzzzzzzzzzzzz",
		"000000001f1zzzzzzzzzzzz", "000000001f10000000000000",
		"000000001f1!1", "000000001f1!0", "000000001f1!", "000000001f1!01", "000000001f1!999999999",
		"000000001f1!9999999999",
		"000000001f1!99999999999999999999", "000000001f1!x", "000000001f1!1:", "000000001f1!1:k",
		"000000001f1:k", "000000001f1:", "000000001f1:k:l",
		"000000001f1:" + strings.Repeat("k", maxLock), "000000001f1:" + strings.Repeat("k", maxLock+1),
		"000000001f1:é", "000000001f1 ", " 000000001f1",
		"000000001f1\n", "000000001f1:k\n", "000000001f1\x00", "000000001f1!1!1", "000000001e1-k",
		"zzzzzzzzzd1y2p0ij32e8e7!7:A_b-9",
	}
	drawn := rapid.StringMatching(`[0-9a-z]{8,9}[0-9a-zA]?[frdex][0-9a-zA]{0,14}` +
		`(!\d{0,11})?(:[A-Za-z0-9_:-]{0,24})?[ \n]?`)
	for seed := range 2000 {
		records = append(records, drawn.Example(seed))
	}
	part, err := luaFiles.ReadFile("lua/include/records.lua")
	if err != nil {
		t.Fatal(err)
	}
	text := string(part) + `
		local read = {}
		for i, record in ipairs(ARGV) do read[i] = decode(record) and 1 or 0 end
		return read`
	a, err := parseURL(testserver.SharedRedis(t))
	if err != nil {
		t.Fatal(err)
	}
	client := a.dial()
	defer client.Close()
	args := make([]any, len(records))
	for i, r := range records {
		args[i] = r
	}
	read, err := client.Eval(t.Context(), text, nil, args...).Int64Slice()
	if err != nil || len(read) != len(records) {
		t.Fatalf("%d answers for %d records, %v", len(read), len(records), err)
	}
	readable := 0
	for i, r := range records {
		_, _, err := decodeRecord("id", r)
		if (err == nil) != (read[i] == 1) {
			t.Errorf("record %q: the script reads it: %t; the program: %v", r, read[i] == 1, err)
		}
		readable += int(read[i])
	}
	if readable < 100 || readable > len(records)-100 {
		t.Errorf("%d of %d records can be read: that compares too little", readable, len(records))
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
