package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// KeyCommand is the API for API keys from the shell.
type KeyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key and print it, this once."`
	List   keyList   `cmd:"" help:"List the project's API keys, newest first, those that have ended too."`
	Revoke keyRevoke `cmd:"" help:"End an API key, at once."`
}

// keyCreate makes a key.
type keyCreate struct {
	Name      string   `in:"name" arg:"" help:"What it is for, such as \"checkout service\"."`
	Scope     []string `in:"scopes" required:"" enum:"send,read,operate,admin" placeholder:"SCOPE" help:"What it may do: send (hand over callbacks and events), read (look at everything but secrets), operate (also change callbacks, endpoints and lanes), admin (also keys, secrets, projects and the index). May be repeated. Operate includes read, admin all."`
	ExpiresIn string   `in:"expires_in" placeholder:"DURATION" help:"It ends after so long, such as 90d. Default: it does not."`
	Reason    string   `in:"reason" placeholder:"TEXT" help:"Why, for the audit."`
	JSON      bool     `name:"json" help:"Print the server's answer for machines; the key is in \"key\"."`
	serverFlags
}

// Help is what key create --help says below the flags' summary.
func (*keyCreate) Help() string {
	return "The key goes to the standard output and all else to the error output, so that KEY=$(dispatcher key create checkout --scope send) keeps it. " +
		"It needs a key of scope admin itself, such as the admin key of the settings."
}

// Run makes the key.
func (cmd *keyCreate) Run(c *session) error {
	c.json = cmd.JSON
	return ask(c, post("/v1/keys", cmd), func(k *client.NewKey) {
		end := "lasts until it is revoked"
		if !k.ExpiresAt.IsZero() {
			end = "ends " + console.ClockTime(k.ExpiresAt)
		}
		fmt.Fprintf(c.Err, "%s  %s of the project %s has the scopes %s; it %s\nThis is the only time that the key is shown: keep it now.\n",
			k.ID, k.Name, k.Project, joined(k.Scopes, ", "), end)
		fmt.Fprintln(c.Out, k.Text)
	})
}

// keyList lists the keys.
type keyList struct{ listFlags }

// Run prints the keys.
func (cmd *keyList) Run(c *session) error {
	none := "the project has no keys (\"dispatcher key create\" makes one); the admin key of the settings is not among them"
	header, now := "id, name, scopes, ends with, made, last used, state", time.Now()
	return list(c, cmd.listFlags, "/v1/keys", cmd, none, header, func(k *client.Key) []any {
		return []any{
			k.ID, console.Short(k.Name, 32), joined(k.Scopes, " "), "…" + k.Hint, ago(k.CreatedAt, now),
			agoOr(k.LastUsedAt, now, "never"), keyState(c, k, now),
		}
	})
}

// keyState says whether a key is valid, and until when.
func keyState(c *session, k *client.Key, now time.Time) string {
	valid := c.Paint("valid", console.StateColour(client.Succeeded))
	switch {
	case !k.RevokedAt.IsZero():
		return c.Paint("revoked "+ago(k.RevokedAt, now), console.StateColour(client.Dead))
	case k.ExpiresAt.IsZero():
		return valid
	case !k.ExpiresAt.After(now):
		return c.Paint("ended "+ago(k.ExpiresAt, now), console.StateColour(client.Dead))
	}
	return valid + " until " + console.ClockTime(k.ExpiresAt)
}

// keyRevoke ends a key.
type keyRevoke struct {
	ID string `arg:"" help:"Id of the key, key_ and 26 characters (see \"dispatcher key list\")."`
	changeFlags
}

// Run ends the key.
func (cmd *keyRevoke) Run(c *session) error {
	if strings.HasPrefix(cmd.ID, config.APIKeyPrefix) {
		return console.Wrong("this is a key itself, not its id: \"dispatcher key list\" shows the ids, which begin with key_")
	}
	r := request{http.MethodDelete, "/v1/keys/" + url.PathEscape(cmd.ID), cmd, fmt.Sprintf("no key of the project has the id %q", cmd.ID)}
	return ask(c, r, func(k *client.Key) {
		c.printf("%s  %s is revoked: nobody can use it any more\n", k.ID, k.Name)
	})
}
