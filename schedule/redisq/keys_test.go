package redisq

import (
	"cmp"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// TestRecords checks that encodeRecord and decodeRecord agree for all items. Due times are limited.
func TestRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := schedule.Item{
			ID: "01K00000000000000000000001", Lane: rapid.Int64Min(1).Draw(t, "lane"),
			Lock:   rapid.StringMatching(`([A-Za-z0-9_-]{1,22})?`).Draw(t, "lock"),
			Retry:  rapid.Bool().Draw(t, "retry"),
			Forced: rapid.Bool().Draw(t, "forced"),
		}
		drawn := rapid.Int64Range(0, maxDue).Draw(t, "due")
		for _, want.Due = range []int64{drawn, -1, 0, 1, maxDue, maxDue + 1, math.MaxInt64} {
			record := encodeRecord(want)
			want.Due = min(max(want.Due, 0), maxDue)
			got, diverts, cause, err := decodeRecord(want.ID, record)
			if err != nil || got != want || diverts != 0 || cause != 0 {
				t.Fatalf("%+v is written %q, which reads as %+v, %d diverts, %v", want, record, got, diverts,
					err)
			}
			// The scripts put diverts between the lane and the lock.
			head, lock, locked := strings.Cut(record, ":")
			record = head + "!17o"
			if locked {
				record += ":" + lock
			}
			got, diverts, cause, err = decodeRecord(want.ID, record)
			if err != nil || got != want || diverts != 17 || cause != schedule.OutOfTurn {
				t.Fatalf("%q reads as %+v, %d diverts (%c), %v", record, got, diverts, cause, err)
			}
		}
	})
}

// TestRecordsAreShort bounds the length of records: 14 bytes for a million and a half lanes, for which the
// server allocates 16, and 24 bytes for any lane that SQL will number.
func TestRecordsAreShort(t *testing.T) {
	t.Parallel()
	for lane, most := range map[int64]int{1: 14, 1000: 14, 100_000: 14, 1_600_000: 14, 1 << 52: 24} {
		if r := encodeRecord(schedule.Item{Lane: lane, Due: maxDue}); len(r) > most {
			t.Errorf("%q has %d bytes, want at most %d", r, len(r), most)
		}
	}
}

// TestRecordsReadAlike checks that the program and the scripts accept the same records. A record that only
// the scripts accept would be claimed by a process that cannot use it.
func TestRecordsReadAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a redis-server")
	}
	t.Parallel()
	records := transcript.Inputs(t, "testdata/seeds/records.txt")
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
		_, _, _, err := decodeRecord("id", r)
		if (err == nil) != (read[i] == 1) {
			t.Errorf("record %q: the script reads it: %t; the program: %v", r, read[i] == 1, err)
		}
		readable += int(read[i])
	}
	if readable < 100 || readable > len(records)-100 {
		t.Errorf("%d of %d records can be read: that compares too little", readable, len(records))
	}
}

// FuzzDecodeRecord checks that an accepted record is within bounds and keeps its meaning when written again.
func FuzzDecodeRecord(f *testing.F) {
	for _, record := range transcript.Inputs(f, "testdata/seeds/records.txt") {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record string) {
		it, _, _, err := decodeRecord("id", record)
		if err != nil {
			return
		}
		back, _, _, err := decodeRecord("id", encodeRecord(it))
		if err != nil || back != it || it.Lane <= 0 || it.Due < 0 || it.Due > maxDue {
			t.Errorf("%q reads as %+v, written %q, which reads as %+v, %v", record, it, encodeRecord(it),
				back, err)
		}
	})
}

// FuzzRedisURL checks that an accepted URL has hosts with ports and makes a client, and that an error does
// not repeat the URL.
func FuzzRedisURL(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/addresses/read.txt") {
		if text, err := strconv.Unquote(strings.TrimPrefix(line, "url ")); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := parseURL(raw)
		if err != nil {
			_, rest, _ := strings.Cut(raw, "://")
			distinct := len(rest) > 8 && !strings.Contains(forms+escapes, rest)
			if distinct && strings.Contains(err.Error(), rest) {
				t.Errorf("the error repeats the URL: %v", err)
			}
			return
		}
		if len(a.hosts) == 0 || len(a.hosts) > 1 && !a.cluster && a.master == "" {
			t.Errorf("%q has the hosts %q", raw, a.hosts)
		}
		for _, host := range a.hosts {
			h, p, err := net.SplitHostPort(host)
			if n, portErr := strconv.Atoi(p); err != nil || portErr != nil || h == "" || n < 1 || n > 65535 {
				t.Errorf("%q has the host %q", raw, host)
			}
		}
		if a.db < 0 || a.cluster && a.db != 0 {
			t.Errorf("%q has the database %d", raw, a.db)
		}
		if err := a.dial().Close(); err != nil {
			t.Errorf("%q: close the client: %v", raw, err)
		}
	})
}

// FuzzLane checks that lanes are read as they were written, whatever follows them, and sort as their numbers
// do.
func FuzzLane(f *testing.F) {
	for _, line := range transcript.Inputs(f, "testdata/seeds/lanes.txt") {
		a, b, _ := strings.Cut(line, " | ")
		f.Add(a, b)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, rest, ok := decodeLane(a)
		if !ok {
			return
		}
		written := encodeLane(x)
		again, tail, ok := decodeLane(written + rest)
		if !ok || again != x || tail != rest || !strings.HasSuffix(a, rest) {
			t.Errorf("%q is lane %d and %q, written %q, which reads as %d and %q", a, x, rest, written, again,
				tail)
		}
		if y, _, ok := decodeLane(b); ok && cmp.Compare(written, encodeLane(y)) != cmp.Compare(x, y) {
			t.Errorf("lanes %d and %d are written %q and %q", x, y, written, encodeLane(y))
		}
	})
}

// FuzzGeneration checks that an accepted generation keeps its value when written again.
func FuzzGeneration(f *testing.F) {
	for _, s := range []string{
		"7.3", "7", "7.2", "7.4", "-1.3", "0.3", ".3", "7.", "7.3.3", "99999999999999999999.3", "+7.3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		generation, err := decodeGeneration(text)
		if err != nil {
			return
		}
		back, err := decodeGeneration(encodeGeneration(generation))
		if err != nil || back != generation || generation < 0 {
			t.Errorf("%q is generation %d, which reads back as %d, %v", text, generation, back, err)
		}
	})
}

// FuzzInfo checks that each parsed name and value occurs in INFO.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\n\r\nused_memory:1\r\n")
	f.Add("a:b:c\na:d\n:x\nnone")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range parseInfo(text) {
			if !strings.Contains(text, name+":"+value) {
				t.Errorf("%q: %q is not in %q", name, value, text)
			}
		}
		if CheckVersion(text) == nil {
			major, _, _ := strings.Cut(text, ".")
			if n, err := strconv.Atoi(major); err != nil || n < 6 {
				t.Errorf("version %q is accepted", text)
			}
		}
	})
}
