package redisq

import (
	"errors"
	"fmt"
	"testing"
)

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
