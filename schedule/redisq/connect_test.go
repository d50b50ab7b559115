package redisq

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// TestAddresses: what addresses and versions are read as.
func TestAddresses(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/addresses/read.txt", func(line string) string {
		operation, word, _ := strings.Cut(line, " ")
		text, err := strconv.Unquote(word)
		switch {
		case operation == "url" && err == nil:
			a, err := parseURL(text)
			return cmp.Or(refused(t, err), fmt.Sprintf("%+v", a))
		case operation == "version" && err == nil:
			return cmp.Or(refused(t, CheckVersion(text)), "good")
		}
		t.Fatalf("%s: %v", line, err)
		return ""
	})
}

// refused returns an error's text, which is one line without a secret; empty: there is no error.
func refused(t *testing.T, err error) string {
	if err == nil {
		return ""
	}
	if strings.Contains(err.Error(), "sec") || strings.Contains(err.Error(), "ret") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error tells a part of the password, or has several lines: %v", err)
	}
	return err.Error()
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
