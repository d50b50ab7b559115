package redisq

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// FuzzRedisURL: what is taken names hosts with ports and makes a client; what is refused is not repeated.
func FuzzRedisURL(f *testing.F) {
	for _, s := range []string{
		"redis://localhost", "rediss://u:p%40ss@h:6380/3",
		"redis+sentinel://u:p@h1,h2:26380/mymaster/2?sentinel_password=x",
		"redis+cluster://[::1]:7000,h2", "redis://", "redis://a,b", "redis+://h", "redis://:p@/0",
		"redis://h/x", "redis+cluster://h/1",
		"redis://user:p/ss@h", "redis://h:70000", "redis://0]0", "redis+sentinel://h", "redis://h?db=1",
		"redis://u:%zz@h",
		"redis://h/99999999999999999999",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := parseURL(raw)
		if err != nil {
			if _, rest, ok := strings.Cut(raw, "://"); ok && len(rest) > 8 &&
				!strings.Contains(forms+escapes, rest) &&
				strings.Contains(err.Error(), rest) {
				t.Errorf("the error shows the URL: %v", err)
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

// FuzzLane: lanes are read as they were written, whatever follows, and sort as their numbers do.
func FuzzLane(f *testing.F) {
	for _, s := range [][2]string{
		{"11rest", "2zz"}, {"", "0"}, {"d1y2p0ij32e8e7", "d1y2p0ij32e8e8"}, {"2+1", "2-1"}, {"201", "1Z"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, rest, ok := decodeLane(a)
		if !ok {
			return
		}
		written := encodeLane(x)
		if again, tail, ok := decodeLane(written + rest); !ok || again != x || tail != rest ||
			!strings.HasSuffix(a, rest) {
			t.Errorf("%q is lane %d and %q, written %q, which reads as %d and %q", a, x, rest, written, again,
				tail)
		}
		if y, _, ok := decodeLane(b); ok && cmp.Compare(written, encodeLane(y)) != cmp.Compare(x, y) {
			t.Errorf("lanes %d and %d are written %q and %q", x, y, written, encodeLane(y))
		}
	})
}

// FuzzGeneration: a generation that is taken is of this layout, and written as it was.
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
		if back, err := decodeGeneration(encodeGeneration(generation)); err != nil || back != generation ||
			generation < 0 {
			t.Errorf("%q is generation %d, which reads back as %d, %v", text, generation, back, err)
		}
	})
}

// FuzzItem: a record that is read is written as one that reads the same.
func FuzzItem(f *testing.F) {
	for _, s := range []string{
		"000000001f1", "00jd2x4k0r2s:order-7", "000000001rzz!3:lock", "zzzzzzzzze1", "000000001f1!9",
		"000000001d01:",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, record string) {
		it, _, err := decodeRecord("id", record)
		if err != nil {
			return
		}
		var back schedule.Item
		if back, _, err = decodeRecord("id", encodeRecord(it)); err != nil || back != it {
			t.Errorf("%q is %+v, written %q, which reads as %+v, %v", record, it, encodeRecord(it), back, err)
		}
	})
}

// FuzzInfo: each name and value that is read stands in INFO.
func FuzzInfo(f *testing.F) {
	f.Add("# Server\r\nredis_version:7.0.15\r\n\r\nused_memory:1\r\n")
	f.Add("a:b:c\na:d\n:x\nnone")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range parseInfo(text) {
			if !strings.Contains(text, name+":"+value) {
				t.Errorf("%q: %q is not in %q", name, value, text)
			}
		}
		if checkVersion(text) == nil {
			major, _, _ := strings.Cut(text, ".")
			if n, err := strconv.Atoi(major); err != nil || n < 6 {
				t.Errorf("version %q is taken", text)
			}
		}
	})
}
