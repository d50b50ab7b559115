package query

import "net/url"

// HTTPS says whether browsers come over https to a public URL; the empty one says nothing of it, so they do
// not.
func HTTPS(publicURL string) bool {
	u, err := url.Parse(publicURL)
	return err == nil && u.Scheme == "https"
}
