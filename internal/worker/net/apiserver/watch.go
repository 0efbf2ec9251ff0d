package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// Watch sends a watch request, whose path has the query that makes it one, and returns at the first change that it reports, or
// when the server ends it, as it does after a while. It reports whether there was a change; a server that no longer knows the
// version that the watch began at counts as one. The caller reads again whatever it was.
func (c *Client) Watch(ctx context.Context, path string) (changed bool, err error) {
	request, err := c.request(ctx, c.URL(c.Host, path), Request{Method: http.MethodGet})
	if err != nil {
		return false, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // the status says enough
		return response.StatusCode == http.StatusGone, NewStatusError(Response{Status: response.StatusCode, Body: body})
	}
	events := json.NewDecoder(response.Body)
	for {
		var event struct {
			Type string `json:"type"`
		}
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		case event.Type != "BOOKMARK":
			return true, nil
		}
	}
}
