package redisq

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redis://localhost", "[localhost:6379] db 0"},
		{"redis://", "[localhost:6379] db 0"},
		{"redis://h:7000/3", "[h:7000] db 3"},
		{"rediss://u:p%40ss@h", "[h:6379] db 0 user u pass p@ss tls"},
		{"redis://:secret@h", "[h:6379] db 0 pass secret"},
		{"redis://u:a@b@h", "[h:6379] db 0 user u pass a@b"},
		{"redis://[::1]:7000", "[[::1]:7000] db 0"},
		{"redis://[::1]", "[[::1]:6379] db 0"},
		{"redis+sentinel://h1,h2:7000/mymaster/2", "[h1:26379 h2:7000] db 2 master mymaster"},
		{"rediss+sentinel://u:p@h1,h2/m", "[h1:26379 h2:26379] db 0 user u pass p tls master m"},
		{"redis+sentinel://h/m?sentinel_username=a&sentinel_password=b", "[h:26379] db 0 master m sentinel a b"},
		{"redis+cluster://u:p@h1,h2,h3:7000", "[h1:6379 h2:6379 h3:7000] db 0 user u pass p cluster"},
		{"rediss+cluster://h1/", "[h1:6379] db 0 tls cluster"},
	} {
		a, err := parseURL(c.url)
		got := fmt.Sprintf("%v db %d", a.hosts, a.db)
		for _, part := range []struct {
			has  bool
			text string
		}{
			{a.user != "", " user " + a.user}, {a.pass != "", " pass " + a.pass}, {a.tls, " tls"}, {a.cluster, " cluster"},
			{a.master != "", " master " + a.master},
			{len(a.sentinel) > 0, " sentinel " + a.sentinel.Get("sentinel_username") + " " + a.sentinel.Get("sentinel_password")},
		} {
			if part.has {
				got += part.text
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v; want %s", c.url, got, err, c.want)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "localhost:6379", "http://h", "redis+other://h", "redis+://h", "unix:///tmp/s", "redis://h1,h2", "redis://h/x", "redis://h/-1",
		"redis://h/1/2", "redis://h:port", "redis://h:0", "redis://h:70000", "redis+cluster://", "redis+cluster://h/1",
		"redis+sentinel://h", "redis+sentinel://,/m", "redis://h?db=1", "redis://%zz:secret@h", "redis://u:secret%zz@h",
		"redis://:secret", "redis://secret:secret", "redis://u:sec/ret@h", "redis://u:sec?ret@h", "redis://u:sec/ret/secret@h", "secret://h",
		"redis://u:secret@h1,h2", "redis://u:secret@h/x?secret=1;2", "redis+sentinel://u:secret@h/m/1/2",
	} {
		_, err := parseURL(url)
		if err == nil {
			t.Errorf("%q was accepted", url)
		} else if strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "ret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error tells a part of the password, or has several lines: %v", url, err)
		}
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, good := range map[string]bool{
		"6.2.0": true, "6.2.14": true, "7.0.15": true, "8.0.0": true, "10.1": true,
		"6.0.16": false, "5.0.7": false, "2.8.0": false, "": false, "unstable": false,
	} {
		if err := CheckVersion(version); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestRefusalIsOneLineWithACure(t *testing.T) {
	wrong := errors.New("WRONGPASS invalid username-password pair or user is disabled.")
	for _, c := range []struct {
		answer error
		want   string
	}{
		{wrong, "redis: WRONGPASS invalid username-password pair or user is disabled: set the right user and password in redis_url"},
		{fmt.Errorf("redis at FailoverClient: %w", wrong),
			"redis behind the Sentinels: WRONGPASS invalid username-password pair or user is disabled: set the right user and password in redis_url"},
		{fmt.Errorf("redis at FailoverClient: redis: all sentinels specified in configuration are unreachable: %w", errors.Join(wrong, wrong)),
			"redis behind the Sentinels: redis: all sentinels specified in configuration are unreachable: WRONGPASS invalid username-password pair or user is disabled: " +
				"redis_url takes the Sentinels' own user and password as ?sentinel_username=…&sentinel_password=…"},
		{errors.New("redis at h:1: version 5.0.1 is too old; 6.2 or newer is needed"), "redis at h:1: version 5.0.1 is too old; 6.2 or newer is needed"},
	} {
		got := refusalOf(c.answer)
		if got.Error() != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if !errors.Is(got, c.answer) {
			t.Errorf("%s hides what the servers answered", got)
		}
	}
}
